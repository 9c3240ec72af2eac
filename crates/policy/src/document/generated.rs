//! What is generated from the table of fields and checked in is what it would be now.

use super::{reference, schema};

#[test]
fn the_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/policy.schema.json");
    if std::env::var_os("BRIG_BLESS").is_some() {
        std::fs::write(path, schema()).expect("the schema can be written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == schema(),
        "schema/policy.schema.json is out of date; run `BRIG_BLESS=1 cargo test -p brig-policy`"
    );
}

#[test]
fn the_reference_is_current() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/policy.md"
    );
    let (open, close) = ("<!-- fields: generated -->\n", "<!-- /fields -->");
    let kept = std::fs::read_to_string(path).expect("the reference");
    let (before, rest) = kept.split_once(open).expect("the start of the fields");
    let (_, after) = rest.split_once(close).expect("the end of the fields");
    let now = format!("{before}{open}\n{}{close}{after}", reference());
    if std::env::var_os("BRIG_BLESS").is_some() {
        std::fs::write(path, &now).expect("the reference can be written");
        return;
    }
    assert!(
        kept == now,
        "docs/reference/policy.md is out of date; run `BRIG_BLESS=1 cargo test -p brig-policy`"
    );
}
