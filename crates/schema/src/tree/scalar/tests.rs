use super::*;

#[test]
fn numbers_to_another_base_have_any_size() {
    let read = |word| resolve(word, Compat::Agt).expect("a number");
    let big = |digits| Value::integer(digits).expect("an integer");
    assert_eq!(read("0xFF"), Value::Int(255));
    assert_eq!(read("-0x8000000000000000"), Value::Int(i64::MIN));
    assert_eq!(read("0xFFFFFFFFFFFFFFFFFF"), big("4722366482869645213695"));
    assert_eq!(read("-0b10_1"), Value::Int(-5));
    assert_eq!(read("0__"), Value::Int(0));
    let long = format!("0x{}", "f".repeat(100_000));
    // Neither rounded nor taken for text, which would be compared in another way.
    assert!(resolve(&long, Compat::Agt).is_err());
}

#[test]
fn what_both_versions_agree_on_is_taken() {
    let cases = [
        ("deny", Value::from("deny")),
        ("true", Value::Bool(true)),
        ("False", Value::Bool(false)),
        ("~", Value::Null),
        ("", Value::Null),
        ("7", Value::Int(7)),
        ("-12", Value::Int(-12)),
        ("+3", Value::Int(3)),
        ("0", Value::Int(0)),
        ("0x1f", Value::Int(31)),
        ("0.5", Value::Float(0.5)),
        (".5", Value::Float(0.5)),
        ("1.", Value::Float(1.0)),
        ("1.5e+3", Value::Float(1500.0)),
        ("-.inf", Value::Float(f64::NEG_INFINITY)),
        ("1.2.3", Value::from("1.2.3")),
        ("y", Value::from("y")),
        ("network", Value::from("network")),
        ("-", Value::from("-")),
        ("2024-1", Value::from("2024-1")),
    ];
    for (word, value) in cases {
        assert_eq!(resolve(word, Compat::Strict).ok(), Some(value), "{word}");
    }
}

#[test]
fn what_they_disagree_on_is_refused_or_read_as_by_agt() {
    let cases = [
        ("yes", Some(Value::Bool(true))),
        ("Off", Some(Value::Bool(false))),
        ("010", Some(Value::Int(8))),
        ("08", Some(Value::from("08"))),
        ("1_000", Some(Value::Int(1000))),
        ("12:30", Some(Value::Int(750))),
        ("1:30.5", Some(Value::Float(90.5))),
        ("1e3", Some(Value::from("1e3"))),
        ("1.5e3", Some(Value::from("1.5e3"))),
        ("0o17", Some(Value::from("0o17"))),
        ("0b11", Some(Value::Int(3))),
        ("-0x10", Some(Value::Int(-16))),
        ("2024-01-31", None),
        ("2024-01-31 10:00:00", None),
        ("=", None),
        ("<<", None),
    ];
    for (word, value) in cases {
        let fault = resolve(word, Compat::Strict).expect_err(word);
        assert!(
            fault.fix.is_some() && fault.message.contains(word),
            "{fault:?}"
        );
        assert_eq!(resolve(word, Compat::Agt).ok(), value, "{word}");
    }
}
