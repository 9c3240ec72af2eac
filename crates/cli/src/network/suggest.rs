//! `brig sandbox suggest`: the least that would have allowed what was denied.

use brig_audit::Egress;
use brig_config::{Change, List, UserConfig};
use brig_egress::{Host, Rule};
use serde_json::json;

use super::lists;
use super::recorded::{self, Decided};
use crate::args::SuggestArgs;
use crate::failure::{self, Failure};
use crate::{escape, json, user, write_out};

pub fn run(args: &SuggestArgs) -> Result<u8, Failure> {
    let denied = denials(args)?;
    let config = user::load(&user::store()?)?;
    let Some(last) = denied.last() else {
        if args.json {
            json::print(&json!({
                "agent_id": args.agent, "session_id": args.session,
                "add": [], "left_out": [], "applied": false,
            }));
        } else {
            failure::note("nothing was denied that is on record");
        }
        return Ok(0);
    };
    let asked: Vec<&Egress> = denied.iter().map(|decided| &decided.egress).collect();
    let Proposal { add, left_out } = propose(&asked, &config);
    let applied = args.apply && !add.is_empty();
    if applied {
        lists::apply(List::Allow, Change::Add, &add)?;
    }
    super::warn(&add);
    if args.json {
        let left_out: Vec<_> = (left_out.iter())
            .map(|(target, code)| json!({ "target": target, "code": code }))
            .collect();
        json::print(&json!({
            "agent_id": last.agent, "session_id": last.session,
            "add": add, "left_out": left_out, "applied": applied,
        }));
        return Ok(0);
    }
    for (target, code) in &left_out {
        failure::note(&format!("not proposed: {target} ({code})"));
    }
    if add.is_empty() {
        failure::note("there is nothing to add");
        return Ok(0);
    }
    let mut out = String::from("  sandbox_allowlist:\n");
    for rule in config.allow() {
        out.push_str(&format!("    - {}\n", escape::line(&rule.to_string())));
    }
    for rule in &add {
        out.push_str(&format!("+   - {}\n", escape::line(&rule.to_string())));
    }
    let code = write_out(out.as_bytes());
    if !applied {
        failure::hint(&format!(
            "brig sandbox suggest {} --apply",
            escape::line(&last.session)
        ));
    }
    Ok(code)
}

/// Those of one session, the last that has any.
fn denials(args: &SuggestArgs) -> Result<Vec<Decided>, Failure> {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|id| id == found);
    let mut denied = recorded::decisions(|decided| {
        !decided.egress.allowed
            && is(&args.session, &decided.session)
            && is(&args.agent, &decided.agent)
    })?;
    if let Some(last) = denied.last() {
        let (agent, session) = (last.agent.clone(), last.session.clone());
        denied.retain(|decided| (&decided.agent, &decided.session) == (&agent, &session));
    }
    Ok(denied)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Proposal {
    add: Vec<Rule>,
    /// What a person has to think about, and the code it was denied with.
    left_out: Vec<(String, String)>,
}

/// One rule for each host and port, but for those that another covers.
fn propose(denied: &[&Egress], config: &UserConfig) -> Proposal {
    let mut proposal = Proposal::default();
    for egress in denied {
        // Where only the name was asked for, it is for the ports of the web.
        let port = if egress.port == 0 { 443 } else { egress.port };
        let host = Host::parse(&egress.host).ok();
        let missing = matches!(&*egress.code, "network.no-rule" | "network.port");
        let Some(host) = host.filter(|_| missing) else {
            let target = match egress.port {
                0 => egress.host.clone(),
                port => format!("{}:{port}", egress.host),
            };
            let left_out = (target, egress.code.clone());
            if !proposal.left_out.contains(&left_out) {
                proposal.left_out.push(left_out);
            }
            continue;
        };
        let rule = Rule::exactly(&host, port);
        let known = |rules: &[Rule]| rules.iter().any(|own| own.covers(&rule));
        if !known(config.allow()) && !known(&proposal.add) {
            proposal.add.retain(|own| !rule.covers(own));
            proposal.add.push(rule);
        }
    }
    proposal.add.sort();
    proposal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(host: &str, port: u16, code: &str) -> Egress {
        Egress {
            allowed: false,
            code: code.into(),
            rule: None,
            layer: None,
            protocol: "connect".into(),
            host: host.into(),
            port,
            carried: None,
        }
    }

    #[test]
    fn the_proposal_is_the_least_that_would_have_done() {
        let denials = [
            denied("b.org", 443, "network.no-rule"),
            denied("b.org", 80, "network.no-rule"),
            denied("b.org", 0, "network.no-rule"),
            denied("a.org", 8443, "network.port"),
            denied("known.org", 443, "network.no-rule"),
            denied("10.0.0.1", 80, "network.address"),
            denied("169.254.169.254", 80, "network.address"),
            denied("bad.org", 443, "network.blocked"),
            denied("bad.org", 443, "network.blocked"),
            denied("no host!", 443, "network.malformed"),
        ];
        let denials: Vec<&Egress> = denials.iter().collect();
        let config = UserConfig::parse("c", b"sandbox_allowlist: ['known.org']\n").unwrap();
        let Proposal { add, left_out } = propose(&denials, &config.0);
        let add: Vec<String> = add.iter().map(ToString::to_string).collect();
        assert_eq!(add, ["a.org:8443", "b.org"]);
        let left_out: Vec<&str> = left_out.iter().map(|(target, _)| &**target).collect();
        let wanted = [
            "10.0.0.1:80",
            "169.254.169.254:80",
            "bad.org:443",
            "no host!:443",
        ];
        assert_eq!(left_out, wanted);
    }
}
