//! Numbers beyond what a type holds, and documents that are larger than they look.

use brig_policy::{Compat, Document, Map, PolicySet};
use brig_schema::Format;

fn load(text: &str) -> Result<PolicySet, String> {
    let loaded = Document::load("p.yaml", text, Compat::Agt);
    let loaded = loaded.map_err(|problems| problems.to_string())?;
    Ok(PolicySet::new(vec![loaded.document]))
}

/// A rule that denies with this priority, before one that allows with that one.
fn two(deny: &str, allow: &str) -> Result<bool, String> {
    let set = load(&format!(
        "defaults: {{action: allow}}\nrules:\n\
         - {{name: a, action: allow, priority: {allow}, condition: {{field: x, operator: eq, value: 1}}}}\n\
         - {{name: d, action: deny, priority: {deny}, condition: {{field: x, operator: eq, value: 1}}}}\n"
    ))?;
    let facts: Map = [("x", 1_i64)].into_iter().collect();
    Ok(set.evaluate(&facts).allowed)
}

/// What pydantic 2.13 and PyYAML make of a priority: whether the rule that denies comes first.
#[test]
fn a_priority_has_no_bounds_as_in_python() {
    let nines = "9".repeat(4300);
    for (deny, allow, allowed) in [
        ("9223372036854775808", "1", false),
        ("9223372036854775808", "9223372036854775807", false),
        ("1", "9223372036854775808", true),
        ("-9223372036854775809", "0", true),
        ("0", "-9223372036854775809", false),
        ("-9223372036854775809", "-9223372036854775808", true),
        ("100000000000000000000", "99999999999999999999", false),
        ("-100000000000000000000", "-99999999999999999999", true),
        ("100000000000000000000", "100000000000000000000", true),
        ("'100000000000000000001'", "100000000000000000000", false),
        (
            "\"100000000000000000001.0\"",
            "100000000000000000000",
            false,
        ),
        ("1_000_000_000_000_000_000_000", "2", false),
        ("0xffffffffffffffffffff", "18446744073709551616", false),
        ("-0xffffffffffffffffffff", "-18446744073709551616", true),
        ("0b11", "2", false),
        ("010", "9", true),
        ("00000000000000000000000000000000009", "8", false),
        ("1:40", "99", false),
        ("7.0", "6", false),
        ("true", "0", false),
        (&nines, "1", false),
    ] {
        let what = format!("{:.40} beside {allow}", deny);
        assert_eq!(two(deny, allow), Ok(allowed), "{what}");
    }
    assert_eq!(two("2", "1"), Ok(false), "control");
    assert_eq!(two("1", "2"), Ok(true), "control");
}

/// What pydantic or PyYAML refuses, and what is not read exactly here.
#[test]
fn a_number_that_is_not_held_exactly_is_refused_and_never_zero() {
    let long = "1".repeat(4301);
    let hex = format!("0x{}", "f".repeat(1025));
    let sixty = "9999999999999999999:59:59";
    for refused in [
        "1.0e+19",
        "-1.0e+19",
        "1.0e+400",
        ".inf",
        "-.inf",
        ".nan",
        "1e400",
        "7.5",
        "'7.5'",
        "'0x10'",
        "'7__0'",
        "'_7'",
        "'-_7'",
        "'7_'",
        "'7.0_0'",
        "'7.'",
        "'.0'",
        "'1e5'",
        "''",
        "'--7'",
        "'+-7'",
        "'- 7'",
        "'٣'",
        "9.3e+18",
        "[1]",
        "null",
        "2020-01-01",
        &long,
        &format!("'{long}'"),
        &hex,
        sixty,
    ] {
        let what = format!("{refused:.40}");
        assert!(two(refused, "1").is_err(), "{what}");
    }
    // As a value in a condition it is not taken for text either.
    for number in [&*long, &*hex, sixty] {
        let text = format!(
            "rules: [{{name: r, action: deny, condition: {{field: x, operator: eq, value: {number}}}}}]\n"
        );
        assert!(load(&text).is_err(), "{number:.40}");
        for compat in [Compat::Strict, Compat::Agt] {
            let json = text.replace("rules", "\"rules\"");
            assert!(Document::load("p.json", json, compat).is_err());
        }
    }
    let quoted = format!(
        "rules: [{{name: r, action: deny, condition: {{field: x, operator: eq, value: '{long}'}}}}]\n"
    );
    load(&quoted).expect("control: text may be long");
}

/// A limit that is too small to hold is not replaced by the default, which is larger.
#[test]
fn a_limit_below_what_can_be_held_is_the_least_that_can_be_held() {
    let loaded = Document::load(
        "p.yaml",
        "defaults: {max_memory_mb: 1, max_cpu: 0.001, timeout_seconds: 100000000000000000000}\n",
        Compat::Agt,
    );
    let document = loaded.unwrap().document;
    let limits = document.limits();
    assert_eq!(
        limits.max_memory_mb.as_ref().map(|given| given.value),
        Some(16)
    );
    assert_eq!(limits.max_cpu.as_ref().map(|given| given.value), Some(0.01));
    assert_eq!(limits.timeout_seconds, None);
    let strict = Document::load("p.yaml", "defaults: {max_memory_mb: 1}\n", Compat::Strict);
    assert!(strict.is_err());
}

fn refused_as_too_large(what: &str, text: &str) {
    for compat in [Compat::Strict, Compat::Agt] {
        let begun = std::time::Instant::now();
        let problems = Document::load("p.yaml", text, compat).unwrap_err();
        assert!(
            problems.to_string().contains("more than"),
            "{what}: {problems}"
        );
        assert!(begun.elapsed().as_secs() < 20, "{what}");
    }
}

#[test]
fn anchors_and_aliases_do_not_multiply_a_document() {
    // Each anchor would keep a copy of all that is inside.
    let list = "x,".repeat(150_000);
    let nested = (0..55).map(|n| format!("&a{n} [")).collect::<String>();
    refused_as_too_large(
        "nested anchors",
        &format!("a: {nested}{list}{}\n", "]".repeat(55)),
    );
    let bytes = "y".repeat(900_000);
    refused_as_too_large(
        "nested anchors around one text",
        &format!("a: {nested}{bytes}{}\n", "]".repeat(55)),
    );
    refused_as_too_large(
        "one text, often",
        &format!("a: &t {bytes}\nb: [{}]\n", "*t,".repeat(1000)),
    );
    let laughs: String = (1..20)
        .map(|n| format!("k{n}: &l{n} [{}]\n", format!("*l{},", n - 1).repeat(9)))
        .collect();
    refused_as_too_large("billion laughs", &format!("k0: &l0 [x]\n{laughs}"));
    // Control: sensible repetition, also in AGT's manner.
    let text = "name: p\nrules:\n- &r {name: r, action: deny, condition: {field: x, operator: eq, value: 1}}\n- {<<: *r, name: s}\n";
    assert_eq!(load(text).unwrap().documents()[0].rules().len(), 2);
    assert_eq!(Format::of("p.yaml"), Format::Yaml);
}

/// Merging must not take time with the square of the keys.
#[test]
fn large_merges_take_no_time() {
    let keys: String = (0..60_000).map(|n| format!("k{n}: 1,")).collect();
    let text = format!("x: &a {{{keys}}}\ny: {{<<: [*a], z: 1}}\n");
    let begun = std::time::Instant::now();
    let _ = Document::load("p.yaml", text, Compat::Agt);
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}
