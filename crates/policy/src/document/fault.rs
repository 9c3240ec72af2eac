//! What is wrong with a value, in words.

use super::fields::{DEFAULTS, Field};
use crate::problem::{Fault, nearest, quoted};
use crate::tree::Node;
use crate::value::Value;

pub(super) fn wrong_type(wanted: &str, node: &Node) -> Fault {
    Fault::new(
        "policy.type",
        format!("must be {wanted}, found {}", node.describe()),
    )
    .fix(format!("give {wanted}"))
}

pub(super) fn unknown_key(key: &str, fields: &'static [Field]) -> Fault {
    let fault = Fault::new("policy.unknown-key", format!("unknown key {}", quoted(key)));
    if key == "dynamic_condition" {
        return fault.fix("conditions on time and budget are not supported; remove it");
    }
    if let Some(meant) = nearest(key, fields.iter().map(|field| field.name)) {
        return fault.fix(format!("did you mean `{meant}`?"));
    }
    let elsewhere = DEFAULTS.iter().any(|field| field.name == key);
    if elsewhere && fields.iter().any(|field| field.name == "defaults") {
        return fault.fix(format!("`{key}` belongs under `defaults`"));
    }
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    fault.fix(format!("known keys are {}", names.join(", ")))
}

pub(super) fn out_of_range(value: &Value, min: &str, max: &str) -> Fault {
    let range = if max == i64::MAX.to_string() {
        format!("at least {min}")
    } else {
        format!("{min} to {max}")
    };
    Fault::new(
        "policy.range",
        format!("{} is out of range", quoted(&value.to_text())),
    )
    .fix(format!("give a value of {range}"))
}
