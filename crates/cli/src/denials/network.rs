//! Denied connections and lookups, with the rule that would allow each.

use std::net::IpAddr;

use brig_audit::Egress;
use brig_egress::{Class, Host, Rule};
use brig_reason::ReasonCode;

use super::{Denied, Kind};

/// One for each host, port and reason. A lookup that was followed by a connection is not listed.
pub(super) fn denied(attempts: &[Egress]) -> Vec<Denied> {
    let mut found: Vec<(&Egress, Denied)> = Vec::new();
    let refused = attempts.iter().filter(|egress| !egress.allowed);
    // Connections first: they say more than the lookup of the same name.
    let (lookups, connections): (Vec<_>, Vec<_>) = refused.partition(|egress| egress.port == 0);
    for egress in connections.into_iter().chain(lookups) {
        let times = egress.times.map_or(1, |times| times.count);
        let subject = |one: &Egress| (one.host.clone(), one.code.clone(), is_udp(one));
        let same = |other: &Egress| subject(other) == subject(egress);
        let known = (found.iter_mut())
            .find(|(other, _)| same(other) && [0, other.port].contains(&egress.port));
        match known {
            Some((other, denied)) if other.port == egress.port => denied.times += times,
            Some(_) => {}
            None => found.push((egress, one(egress, times))),
        }
    }
    found.into_iter().map(|(_, denied)| denied).collect()
}

fn one(egress: &Egress, times: u64) -> Denied {
    let unblock = match (&egress.rule, egress.layer.as_deref()) {
        (Some(rule), Some("user")) if egress.code == ReasonCode::NetworkBlocked => {
            let rule = crate::escape::shell_word(rule);
            Some(format!("brig sandbox unblock {rule}"))
        }
        _ => None,
    };
    Denied {
        kind: Kind::Network,
        what: target(egress),
        times,
        code: egress.code.clone(),
        reason: reason(egress),
        layer: egress.layer.clone(),
        rule: egress.rule.clone(),
        allow: rule_for(egress).map(|(rule, _)| rule),
        name_rule: name_rule(egress),
        remedy: unblock,
    }
}

/// Datagrams are never forwarded, whatever the rules say.
fn is_udp(egress: &Egress) -> bool {
    egress.protocol == "udp"
}

fn target(egress: &Egress) -> String {
    match (Host::parse(&egress.host), egress.port) {
        (_, 0) | (Err(_), _) => egress.host.clone(),
        (Ok(host), port) => host.with_port(port),
    }
}

/// The narrowest rule that would have allowed it, and the kind of address that it opens, if it is not
/// public. `None` if no rule would have, or none should: an address or a name where credentials are
/// served is never suggested, because code chooses what it requests.
pub(crate) fn rule_for(egress: &Egress) -> Option<(Rule, Option<Class>)> {
    let host = Host::parse(&egress.host).ok().filter(|_| !is_udp(egress))?;
    if matches!(&host, Host::Name(name) if name.is_metadata()) {
        return None;
    }
    // If only the name was looked up: ports 80 and 443.
    let port = if egress.port == 0 { 443 } else { egress.port };
    let code = &egress.code;
    if *code == ReasonCode::NetworkRaw && egress.port != 0 {
        return with_class(Rule::exactly_raw(&host, port));
    }
    if *code == ReasonCode::NetworkNoRule || *code == ReasonCode::NetworkPort {
        return with_class(Rule::exactly(&host, port));
    }
    if *code != ReasonCode::NetworkAddress {
        return None;
    }
    let address = match (&host, &egress.address) {
        (Host::Address(address), _) => *address,
        (Host::Name(_), Some(address)) => address.parse::<IpAddr>().ok()?,
        (Host::Name(_), None) => return None,
    };
    let rule = match egress.port {
        0 => Rule::parse(&address.to_string()).ok()?,
        port => Rule::exactly(&Host::from(address), port),
    };
    // A public address is refused only if it is blocked.
    match Class::of(address) {
        Class::Private | Class::Loopback | Class::CarrierGrade => with_class(rule),
        // A proxy that sees all traffic may answer every name with such an address.
        class @ Class::Reserved if host != Host::from(address) && address.is_ipv4() => {
            Some((rule, Some(class)))
        }
        _ => None,
    }
}

/// If a name led to an address that was refused, and only a flag of this run allowed the name: its rule,
/// without which a rule for the address has no effect in other runs.
pub(crate) fn name_rule(egress: &Egress) -> Option<Rule> {
    let is_led =
        egress.code == ReasonCode::NetworkAddress && egress.layer.as_deref() == Some("run");
    let (Ok(host @ Host::Name(_)), true) = (Host::parse(&egress.host), is_led) else {
        return None;
    };
    rule_for(egress)?;
    Some(match egress.port {
        0 => Rule::exactly(&host, 443),
        port if egress.raw => Rule::exactly_raw(&host, port),
        port => Rule::exactly(&host, port),
    })
}

fn with_class(rule: Rule) -> Option<(Rule, Option<Class>)> {
    match rule.opens() {
        None => Some((rule, None)),
        Some(class @ (Class::Private | Class::Loopback | Class::CarrierGrade)) => {
            Some((rule, Some(class)))
        }
        Some(_) => None,
    }
}

fn reason(egress: &Egress) -> String {
    let by = || match (&egress.rule, &egress.layer) {
        (Some(rule), Some(layer)) => format!("`{rule}` ({})", layer_name(layer)),
        _ => "a rule".into(),
    };
    let code = &egress.code;
    if is_udp(egress) {
        return "UDP is not forwarded, only TCP can be allowed".into();
    }
    if *code == ReasonCode::NetworkNoRule {
        return "no rule allows it".into();
    }
    if *code == ReasonCode::NetworkPort {
        return format!("{} is for other ports", by());
    }
    if *code == ReasonCode::NetworkBlocked {
        return format!("blocked by {}", by());
    }
    if *code == ReasonCode::NetworkAddress {
        let address = egress.address.as_deref().unwrap_or(&egress.host);
        return match address.parse::<IpAddr>().map(Class::of) {
            Ok(Class::Public) => format!("it resolves to {address}, which is blocked"),
            Ok(class)
                if egress.address.is_some() && egress.address.as_ref() != Some(&egress.host) =>
            {
                format!("it resolves to {address}, a {class} address that no rule names")
            }
            Ok(class) => format!("a {class} address that no rule names"),
            Err(_) => "an address that no rule names".into(),
        };
    }
    egress.detail.clone().unwrap_or_else(|| egress.code.clone())
}

/// The layer as the user knows it.
fn layer_name(layer: &str) -> &str {
    match layer {
        "user" => "user config",
        "run" => "--allow",
        other => other,
    }
}
