//! Network rules as the egress policy of the service: everything is denied but listed hosts. What can't be
//! said that way is refused.

use std::collections::BTreeSet;

use brig_egress::{Name, Pattern, Ports, Rule};
use brig_sandbox::{Error, NetworkConfig, Result};
use serde_json::{Value, json};

/// The hosts that may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EgressPolicy {
    allow: BTreeSet<String>,
}

impl EgressPolicy {
    /// Without rules, nothing is allowed.
    pub(crate) fn of(network: &NetworkConfig) -> Result<Self> {
        if network.open {
            return refuse("an open network has no meaning there; name the hosts".into());
        }
        let layers = || network.layers.iter();
        let denied: Vec<&Rule> = layers().flat_map(|layer| &layer.deny).collect();
        let blocked = |rule: &Rule| denied.iter().any(|deny| blocks(deny, rule));
        let allowed: Vec<&Rule> = layers()
            .flat_map(|layer| &layer.allow)
            .filter(|rule| !blocked(rule))
            .collect();
        // A host that is allowed may have any address there.
        let is_address = |rule: &&Rule| {
            matches!(
                rule.pattern(),
                Pattern::Address(_) | Pattern::Network { .. }
            )
        };
        if let (Some(deny), false) = (denied.iter().copied().find(is_address), allowed.is_empty()) {
            return refuse(format!(
                "`{deny}` is denied, but addresses can't be denied there; remove it, or allow no host"
            ));
        }
        let mut allow = BTreeSet::new();
        for rule in &allowed {
            if let Some(deny) = denied.iter().find(|deny| is_part(deny, rule)) {
                return refuse(format!(
                    "`{deny}` is denied within `{rule}`, which is allowed; allow single hosts instead"
                ));
            }
            allow.insert(pattern(rule, &allowed)?);
        }
        Ok(Self { allow })
    }

    /// As it is sent.
    pub(crate) fn json(&self) -> Value {
        let mut policy = json!({"defaultAction": "Deny", "trafficInspection": "Full"});
        if !self.allow.is_empty() {
            let rule = |host: &String| json!({"pattern": host, "action": "Allow"});
            policy["hostRules"] = self.allow.iter().map(rule).collect();
        }
        policy
    }

    /// What of the policy in force is not as it was sent, if anything. What is not known to be harmless is a
    /// difference.
    pub(crate) fn difference(&self, found: &Value) -> Option<String> {
        let Some(found) = found.as_object() else {
            return Some("there is none".into());
        };
        let mut hosts = BTreeSet::new();
        for (name, value) in found {
            let same = match name.as_str() {
                _ if value.is_null() => true,
                "defaultAction" => value == "Deny",
                "trafficInspection" => value == "Full",
                "rules" | "validationWarnings" => value.as_array().is_some_and(Vec::is_empty),
                "hostRules" => {
                    let rules = value.as_array().map_or(&[][..], Vec::as_slice);
                    hosts.extend(rules.iter().filter_map(allowed_host));
                    value.is_array() && rules.len() == hosts.len()
                }
                _ => false,
            };
            if !same {
                return Some(format!("`{name}` is {value}"));
            }
        }
        for needed in ["defaultAction", "trafficInspection"] {
            if found.get(needed).is_none_or(Value::is_null) {
                return Some(format!("`{needed}` is missing"));
            }
        }
        let own: BTreeSet<&str> = self.allow.iter().map(String::as_str).collect();
        (hosts != own).then(|| format!("it allows {hosts:?}, not {own:?}"))
    }
}

/// Whether it denies what no rule allows, whatever it allows.
pub(crate) fn is_closed(found: &Value) -> bool {
    let harmless = |name: &str| found[name].is_null() || found[name] == json!([]);
    found["defaultAction"] == "Deny"
        && found["trafficInspection"] == "Full"
        && ["rules", "validationWarnings", "http", "enforcementMode"]
            .into_iter()
            .all(harmless)
}

fn allowed_host(rule: &Value) -> Option<&str> {
    let rule = rule.as_object()?;
    let only = rule.iter().all(|(name, value)| {
        name == "pattern" || (name == "action" && value == "Allow") || value.is_null()
    });
    let host = rule.get("pattern").and_then(Value::as_str);
    host.filter(|_| only && rule.contains_key("action"))
}

fn pattern(rule: &Rule, allowed: &[&Rule]) -> Result<String> {
    // A host is allowed there for HTTP and TLS alike, so one of their ports alone would mean both.
    if rule.is_raw() || rule.ports() != Ports::Web {
        return refuse(format!(
            "`{rule}`: only HTTP and TLS on their usual ports can be allowed there; leave out the port"
        ));
    }
    match rule.pattern() {
        Pattern::Name(name) => Ok(name.to_string()),
        // There it means the domain too.
        Pattern::Below(domain) => {
            let own = |other: &&Rule| {
                other.ports() == Ports::Web && *other.pattern() == Pattern::Name(domain.clone())
            };
            match allowed.iter().any(own) {
                true => Ok(format!("*.{domain}")),
                false => refuse(format!(
                    "`{rule}` would also allow `{domain}` there; allow `{domain}` too if that is meant"
                )),
            }
        }
        Pattern::Address(_) | Pattern::Network { .. } => {
            refuse(format!("`{rule}`: only names can be allowed there"))
        }
    }
}

/// Whether the deny rule leaves nothing of the other.
fn blocks(deny: &Rule, rule: &Rule) -> bool {
    match (deny.pattern(), rule.pattern()) {
        (Pattern::Below(domain), Pattern::Name(name)) => is_below(name, domain),
        (Pattern::Below(domain), Pattern::Below(other)) => {
            domain == other || is_below(other, domain)
        }
        (own, other) => own == other,
    }
}

/// Whether the deny rule takes something away from the other.
fn is_part(deny: &Rule, rule: &Rule) -> bool {
    match (deny.pattern(), rule.pattern()) {
        (Pattern::Name(name) | Pattern::Below(name), Pattern::Below(domain)) => {
            is_below(name, domain)
        }
        _ => false,
    }
}

fn is_below(name: &Name, domain: &Name) -> bool {
    let (name, domain) = (name.to_string(), domain.to_string());
    name.strip_suffix(&domain)
        .is_some_and(|rest| rest.ends_with('.'))
}

fn refuse<T>(problem: String) -> Result<T> {
    Err(Error::InvalidConfig {
        what: "network rules for Azure",
        problem,
    })
}

#[cfg(test)]
mod tests {
    use brig_egress::{Layer, LayerKind};

    use super::*;

    fn network(allow: &[&str], deny: &[&str]) -> NetworkConfig {
        let rules = |texts: &[&str]| -> Vec<Rule> {
            (texts.iter())
                .map(|text| Rule::parse(text).expect("a rule"))
                .collect()
        };
        NetworkConfig {
            open: false,
            layers: vec![
                Layer::new(LayerKind::Policy)
                    .allow(rules(allow))
                    .deny(rules(deny)),
            ],
        }
    }

    #[test]
    fn no_rules_mean_deny_and_not_open() {
        let policy = EgressPolicy::of(&NetworkConfig::default()).expect("a policy");
        let sent = json!({"defaultAction": "Deny", "trafficInspection": "Full"});
        assert_eq!(policy.json(), sent);
        let open = NetworkConfig {
            open: true,
            ..NetworkConfig::default()
        };
        assert!(EgressPolicy::of(&open).is_err());
    }

    #[test]
    fn names_are_allowed_as_they_are() {
        let given = network(&["b.example", "a.example", "*.c.example", "c.example"], &[]);
        let policy = EgressPolicy::of(&given).expect("a policy").json();
        assert_eq!(
            policy["hostRules"],
            json!([
                {"pattern": "*.c.example", "action": "Allow"},
                {"pattern": "a.example", "action": "Allow"},
                {"pattern": "b.example", "action": "Allow"},
                {"pattern": "c.example", "action": "Allow"},
            ])
        );
    }

    #[test]
    fn what_would_mean_something_else_is_refused() {
        for (allow, deny) in [
            ("*.example.com", ""),
            ("example.com:443", ""),
            ("example.com:8443", ""),
            ("example.com:*", ""),
            ("example.com:443/tcp", ""),
            ("192.0.2.1", ""),
            ("192.0.2.0/24", ""),
            ("*.example.com", "a.example.com"),
            ("example.com", "10.0.0.0/8"),
            ("example.com", "192.0.2.1"),
        ] {
            let deny: Vec<&str> = [deny].into_iter().filter(|text| !text.is_empty()).collect();
            let refused = EgressPolicy::of(&network(&[allow], &deny));
            assert!(refused.is_err(), "{allow} {deny:?}");
        }
        let error = EgressPolicy::of(&network(&["*.example.com"], &[])).expect_err("refused");
        assert!(
            error.to_string().contains("allow `example.com` too"),
            "{error}"
        );
    }

    #[test]
    fn what_is_denied_is_not_allowed() {
        let given = network(
            &["a.example", "b.example", "x.c.example"],
            &["a.example", "*.c.example", "other.example"],
        );
        let policy = EgressPolicy::of(&given).expect("a policy");
        assert_eq!(policy.allow, BTreeSet::from(["b.example".to_owned()]));
    }

    #[test]
    fn only_the_same_policy_has_no_difference() {
        let policy =
            EgressPolicy::of(&network(&["a.example", "b.example"], &[])).expect("a policy");
        let mut found = policy.json();
        assert_eq!(policy.difference(&found), None);
        found["hostRules"].as_array_mut().expect("rules").reverse();
        found["rules"] = json!([]);
        found["validationWarnings"] = json!([]);
        found["http"] = Value::Null;
        assert_eq!(policy.difference(&found), None, "the same in another form");
        type Change = fn(&mut Value);
        let changes: [Change; 11] = [
            |found| *found = Value::Null,
            |found| found["defaultAction"] = json!("Allow"),
            |found| found["defaultAction"] = Value::Null,
            |found| found["trafficInspection"] = json!("Partial"),
            |found| found["trafficInspection"] = Value::Null,
            |found| found["hostRules"] = json!([]),
            |found| found["hostRules"][0]["pattern"] = json!("*"),
            |found| found["hostRules"][0]["action"] = json!("Deny"),
            |found| found["hostRules"][0]["scheme"] = json!("any"),
            |found| found["enforcementMode"] = json!("Audit"),
            |found| found["validationWarnings"] = json!([{"code": "x"}]),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut found = policy.json();
            change(&mut found);
            assert!(policy.difference(&found).is_some(), "{index}: {found}");
        }
    }
}
