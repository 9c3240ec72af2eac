use super::*;

fn read(text: &str, compat: Compat) -> Result<Value, String> {
    let mut log = ProblemLog::new("test.json");
    let node = parse(text, compat, usize::MAX, &mut log);
    let failed = log.failed();
    let problems = log.finish();
    match node {
        Some(node) if !failed => Ok(node.to_value()),
        _ => Err(problems[0].to_string()),
    }
}

#[test]
fn values_of_every_kind_are_read() {
    let text = r#" {"a": [1, -2.5, 1e3, true, null, "\u00e9\ud83d\ude00\n"], "b": {}} "#;
    let value = read(text, Compat::Strict).expect("valid");
    let expected = Value::Map(
        [
            (
                "a",
                Value::List(vec![
                    Value::Int(1),
                    Value::Float(-2.5),
                    Value::Float(1000.0),
                    Value::Bool(true),
                    Value::Null,
                    "é😀\n".into(),
                ]),
            ),
            ("b", Value::Map(brig_python_semantics::Map::new())),
        ]
        .into_iter()
        .collect(),
    );
    assert_eq!(value, expected);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let cases = [
        ("", "1:1: not JSON: the text ends"),
        ("{\"a\": 01}", "1:7: a: not JSON: `01` is not a number"),
        ("[1,\n 2,]", "2:4: [2]: not JSON: `` is not a value"),
        ("{a: 1}", "1:2: not JSON: a key must be text"),
        ("\"\\ud800\"", "1:2: not JSON: half a character"),
        ("\"\\x\"", "1:2: not JSON: unknown escape `\\x`"),
        ("[1] 2", "1:5: not JSON: something after the end"),
        (
            "{\"a\":1,\n\"a\":2}",
            "2:1: a: the key `a` was given on line 1",
        ),
        (
            "{\"a\":[0,{\"b\":1,\n\"b\":2}]}",
            "2:1: a[1].b: the key `b` was given on line 1",
        ),
        ("NaN", "1:1: not JSON: `NaN` is not a value"),
        ("\"a\nb\"", "1:3: not JSON: a line break"),
        ("1.", "1:1: not JSON: `1.` is not a number"),
        (".5", "1:1: not JSON: `` is not a value"),
    ];
    for (text, problem) in cases {
        let found = read(text, Compat::Strict).expect_err(text);
        assert!(found.contains(problem), "{text}: {found}");
    }
    let deep = "[".repeat(100_000);
    assert!(
        read(&deep, Compat::Strict)
            .expect_err("deep")
            .contains("nested deeper")
    );
}

#[test]
fn with_agt_the_last_key_counts_and_infinity_is_a_number() {
    let value = read("{\"a\":1,\"a\":-Infinity}", Compat::Agt).expect("lenient");
    let expected = [("a", Value::Float(f64::NEG_INFINITY))]
        .into_iter()
        .collect();
    assert_eq!(value, Value::Map(expected));
}
