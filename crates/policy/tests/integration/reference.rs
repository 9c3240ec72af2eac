//! The engine against an evaluator so plain that it can be read at a glance: no index, no
//! preparation, one rule after the other.

use brig_policy::{Compat, Document, Map, Operator, PolicySet, Value, Verdict};
use brig_python_semantics::Order;
use proptest::prelude::*;

fn plain(document: &Document, context: &Map) -> (bool, Option<String>, Verdict) {
    let mut rules: Vec<_> = document.rules().iter().collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority()));
    for rule in rules {
        let condition = rule.condition();
        let given = match context.get(condition.field()) {
            None | Some(Value::Null) => continue,
            Some(given) => given,
        };
        let value = condition.value();
        let matched = match condition.operator() {
            Operator::Eq => Ok(given.equals(value)),
            Operator::Ne => Ok(!given.equals(value)),
            Operator::Gt => given.in_order(Order::Greater, value),
            Operator::Lt => given.in_order(Order::Less, value),
            Operator::Gte => given.in_order(Order::GreaterOrEqual, value),
            Operator::Lte => given.in_order(Order::LessOrEqual, value),
            Operator::In => value.contains(given),
            Operator::NotIn => value.contains(given).map(|found| !found),
            Operator::Contains => given.contains(value),
            // Only patterns without special characters are made below.
            Operator::Matches => Ok(given.to_text().contains(&*value.to_text())),
        };
        match matched {
            Ok(true) => {
                return (
                    rule.action().allows(),
                    Some(rule.name().into()),
                    rule.action(),
                );
            }
            Ok(false) => {}
            Err(_) => return (false, None, Verdict::Deny),
        }
    }
    let action = document.defaults().action.value;
    (action.allows(), None, action)
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-3_i64..4).prop_map(Into::into),
        prop::sample::select(vec![0.5, 1.0, -1.5, 2.0]).prop_map(Into::into),
        "[abé ]{0,4}".prop_map(Into::into),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            prop::collection::btree_map("[ab]{1,2}", inner, 0..3)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Those that AGT has.
fn action() -> impl Strategy<Value = &'static str> {
    let all = Verdict::ALL
        .into_iter()
        .filter(|verdict| !verdict.needs_approval());
    prop::sample::select(all.map(Verdict::name).collect::<Vec<_>>())
}

fn rule() -> impl Strategy<Value = serde_json::Value> {
    let operator = prop::sample::select(Operator::ALL.map(Operator::name).to_vec());
    let action = action();
    let field = prop::sample::select(vec!["x", "y", "code"]);
    (operator, action, field, value(), "[abé ]{1,3}", -1_i64..2).prop_map(
        |(operator, action, field, value, text, priority)| {
            let value = match operator {
                "matches" => text.into(),
                "contains" if priority == 0 => text.into(),
                _ => value,
            };
            serde_json::json!({
                "name": format!("{operator}-{field}-{priority}"),
                "condition": {"field": field, "operator": operator, "value": value},
                "action": action, "priority": priority,
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_and_the_plain_evaluator_agree(
        rules in prop::collection::vec(rule(), 0..8),
        action in action(),
        context in prop::collection::btree_map(prop::sample::select(vec!["x", "y", "code"]), value(), 0..4),
    ) {
        let text = serde_json::json!({"rules": rules, "defaults": {"action": action}}).to_string();
        let loaded = Document::load("p.json", &text, Compat::Agt).expect("valid");
        let context: Map = serde_json::from_value(serde_json::json!(context)).expect("a map");
        let expected = plain(&loaded.document, &context);
        let policies = PolicySet::new(vec![loaded.document]);
        let answer = policies.evaluate(&context);
        prop_assert_eq!((answer.allowed, answer.matched_rule.clone(), answer.action), expected);
        let explained = policies.explain(&context);
        prop_assert_eq!(explained.answer, answer.clone());
        for flip in explained.flips {
            prop_assert_ne!(flip.answer.allowed, answer.allowed);
        }
    }
}
