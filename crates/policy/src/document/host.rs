//! Hosts in a policy. What a host is, is the same everywhere: see `brig_hosts`.

use brig_hosts::Rule;

use super::Given;
use super::typed::Reader;
use crate::problem::{Entry, Fault};

const FIX: &str = "write a host such as `example.org`, `*.example.org`, `192.0.2.1` or `10.0.0.0/8`, with a `:port` or without";

pub(super) fn host(text: &str) -> Result<Rule, Fault> {
    Rule::parse(text).map_err(|error| {
        Fault::new("policy.host", error.message()).fix(error.hint().unwrap_or(FIX))
    })
}

/// Says which entries open more than they seem to.
pub(super) fn warn(reader: &mut Reader<'_>, hosts: &[Given<Rule>], entry: &Entry<'_>) {
    for host in hosts {
        if let (Some(warning), Some(at)) = (host.value.warning(), host.at) {
            let fault = Fault::new("policy.public-host", warning.message);
            let fix = "name the one host that is needed, or accept that data can leave there";
            reader.log.warning(at, entry, fault.fix(fix));
        }
    }
}
