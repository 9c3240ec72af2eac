//! `brig sandbox suggest`: the smallest list that would have allowed the denied hosts.

use std::net::IpAddr;

use brig_audit::Egress;
use brig_config::{Change, List, UserConfig};
use brig_egress::{Class, Host, Name, Rule};
use brig_reason::ReasonCode;
use serde_json::{Value, json};

use super::lists;
use super::recorded::{self, RecordedDecision};
use crate::args::SuggestArgs;
use crate::denials::{name_rule, rule_for};
use crate::failure::{self, Failure};
use crate::{escape, json, user, write_out};

pub(crate) fn run(args: &SuggestArgs) -> Result<u8, Failure> {
    let Source {
        agent,
        session,
        denied,
    } = source(args)?;
    let config = user::load(&user::store()?)?;
    let asked: Vec<&Egress> = denied.iter().map(|decided| &decided.egress).collect();
    let proposal = propose(&asked, &config, brig_egress::listed_addresses);
    let chosen = match args.private {
        true => proposal.all(),
        false => proposal.add.clone(),
    };
    let applied = args.apply && !chosen.is_empty();
    if applied {
        lists::apply(List::Allow, Change::Add, &chosen)?;
    }
    if args.json {
        let mut object = proposal.json();
        object["agent_id"] = json!(agent);
        object["session_id"] = json!(session);
        object["applied"] = json!(applied);
        json::print(&object);
        return Ok(0);
    }
    if denied.is_empty() {
        nothing(args, session.as_deref())?;
        return Ok(0);
    }
    super::warn(&chosen);
    for (target, code) in &proposal.left_out {
        failure::note(&format!("not suggested: {target} ({code})"));
    }
    if proposal.all().is_empty() {
        failure::note("there is nothing to add");
        return Ok(0);
    }
    let code = write_out(diff(&config, &proposal, args.private).as_bytes());
    let again = match &args.session {
        Some(session) => format!("brig sandbox suggest {}", escape::shell_word(session)),
        None => "brig sandbox suggest".into(),
    };
    if !applied && !proposal.add.is_empty() {
        failure::hint(&format!("{again} --apply"));
    }
    if !args.private && !proposal.private.is_empty() {
        failure::hint(&format!(
            "{again} --apply --private also allows what is marked `?`"
        ));
    }
    Ok(code)
}

fn diff(config: &UserConfig, proposal: &Proposal, with_private: bool) -> String {
    let mut out = String::from("  sandbox_allowlist:\n");
    for rule in config.allow() {
        out.push_str(&format!("    - {}\n", escape::line(&rule.to_string())));
    }
    for rule in &proposal.add {
        out.push_str(&format!("+   - {}\n", escape::line(&rule.to_string())));
    }
    for private in &proposal.private {
        let sign = if with_private { '+' } else { '?' };
        let text = format!("{sign}   - {}", private.text());
        out.push_str(&format!("{}\n", escape::line(&text)));
    }
    out
}

/// Where there is nothing to suggest, an earlier run may be what is meant.
fn nothing(args: &SuggestArgs, session: Option<&str>) -> Result<(), Failure> {
    if args.session.is_some() {
        failure::note("no denials are recorded for this session");
        return Ok(());
    }
    let earlier = recorded::decisions(|decided| {
        !decided.egress.allowed && args.agent.as_ref().is_none_or(|id| *id == decided.agent)
    })?;
    match (session, earlier.last()) {
        (_, None) => failure::note("no denials are recorded"),
        (_, Some(last)) => {
            failure::note("the last run was denied nothing");
            failure::hint(&format!(
                "for the last one that was: brig sandbox suggest {}",
                escape::line(&last.session)
            ));
        }
    }
    Ok(())
}

struct Source {
    agent: Option<String>,
    session: Option<String>,
    denied: Vec<RecordedDecision>,
}

/// The denials of a session, or of the last execution.
fn source(args: &SuggestArgs) -> Result<Source, Failure> {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|id| id == found);
    if args.session.is_some() {
        let mut denied = recorded::decisions(|decided| {
            !decided.egress.allowed
                && is(&args.session, &decided.session)
                && is(&args.agent, &decided.agent)
        })?;
        let agent = denied.last().map(|last| last.agent.clone());
        // Sessions of several agents may have the same id.
        denied.retain(|decided| Some(&decided.agent) == agent.as_ref());
        return Ok(Source {
            agent: agent.or_else(|| args.agent.clone()),
            session: args.session.clone(),
            denied,
        });
    }
    let last = recorded::last_execution(|execution| is(&args.agent, &execution.agent))?;
    let Some(last) = last else {
        return Ok(Source {
            agent: args.agent.clone(),
            session: None,
            denied: Vec::new(),
        });
    };
    let denied = recorded::decisions(|decided| {
        !decided.egress.allowed && decided.execution.as_ref() == Some(&last.id)
    })?;
    Ok(Source {
        agent: Some(last.agent),
        session: Some(last.session),
        denied,
    })
}

/// An address that is not public, and that a program may need all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PrivateAddress {
    rule: Rule,
    why: String,
}

impl PrivateAddress {
    fn of(rule: Rule, class: Class, egress: &Egress) -> Self {
        let why = match Host::parse(&egress.host) {
            Ok(Host::Name(name)) => {
                format!("a {class} address that `{}` resolves to", name.as_str())
            }
            _ => format!("a {class} address"),
        };
        Self { rule, why }
    }

    fn text(&self) -> String {
        format!("{}  # {}", self.rule, self.why)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Proposal {
    add: Vec<Rule>,
    private: Vec<PrivateAddress>,
    /// Targets that are not suggested, with the reason code of their denial.
    left_out: Vec<(String, String)>,
}

impl Proposal {
    fn all(&self) -> Vec<Rule> {
        let private = self.private.iter().map(|private| &private.rule);
        self.add.iter().chain(private).cloned().collect()
    }

    /// Adds a rule, unless another one covers it.
    fn push(&mut self, rule: Rule, class: Option<Class>, egress: &Egress, config: &UserConfig) {
        if (config.allow().iter().chain(&self.all())).any(|own| own.covers(&rule)) {
            return;
        }
        self.add.retain(|own| !rule.covers(own));
        self.private.retain(|own| !rule.covers(&own.rule));
        match class {
            None => self.add.push(rule),
            Some(class) => (self.private).push(PrivateAddress::of(rule, class, egress)),
        }
    }

    fn json(&self) -> Value {
        let private: Vec<Value> = (self.private.iter())
            .map(|private| json!({ "rule": private.rule, "reason": private.why }))
            .collect();
        let left_out: Vec<Value> = (self.left_out.iter())
            .map(|(target, code)| json!({ "target": target, "code": code }))
            .collect();
        json!({ "add": self.add, "private": private, "left_out": left_out })
    }
}

/// One rule for each host and port, except those that another rule covers. `listed` are the addresses
/// of a name as far as they are known without a lookup, which would send the name.
fn propose(
    denied: &[&Egress],
    config: &UserConfig,
    listed: impl Fn(&Name) -> Vec<IpAddr>,
) -> Proposal {
    let mut proposal = Proposal::default();
    for egress in denied {
        let Some((rule, class)) = rule_for(egress) else {
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
        if let Some(name) = name_rule(egress) {
            proposal.push(name, None, egress, config);
        }
        proposal.push(rule, class, egress, config);
        if let Ok(Host::Name(name)) = Host::parse(&egress.host) {
            for address in listed(&name) {
                let at = Egress {
                    code: ReasonCode::NetworkAddress.into(),
                    address: Some(address.to_string()),
                    ..(*egress).clone()
                };
                if let Some((rule, Some(class))) = rule_for(&at) {
                    proposal.push(rule, Some(class), &at, config);
                }
            }
        }
    }
    proposal.add.sort();
    proposal
        .private
        .sort_by(|one, other| one.rule.cmp(&other.rule));
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
            ..Egress::default()
        }
    }

    #[test]
    fn the_proposal_is_the_least_that_would_have_done() {
        let mut mirror = denied("mirror.corp", 8080, "network.address");
        mirror.address = Some("10.0.0.5".into());
        let denials = [
            denied("b.org", 443, "network.no-rule"),
            denied("b.org", 80, "network.no-rule"),
            denied("b.org", 0, "network.no-rule"),
            denied("a.org", 8443, "network.port"),
            denied("a.org", 22, "network.port"),
            denied("a.org", 22, "network.raw"),
            denied("known.org", 443, "network.no-rule"),
            denied("10.0.0.1", 80, "network.address"),
            denied("169.254.169.254", 80, "network.address"),
            denied("Metadata.Google.Internal.", 80, "network.no-rule"),
            mirror,
            denied("bad.org", 443, "network.blocked"),
            denied("bad.org", 443, "network.blocked"),
            denied("no host!", 443, "network.malformed"),
        ];
        let denials: Vec<&Egress> = denials.iter().collect();
        let config = UserConfig::parse("c", b"sandbox_allowlist: ['known.org']\n").unwrap();
        let proposal = propose(&denials, &config.0, |_| Vec::new());
        let private: Vec<String> = (proposal.private.iter())
            .map(PrivateAddress::text)
            .collect();
        assert_eq!(
            private,
            [
                "10.0.0.1:80  # a private address",
                "10.0.0.5:8080  # a private address that `mirror.corp` resolves to",
            ]
        );
        let Proposal { add, left_out, .. } = proposal;
        let add: Vec<String> = add.iter().map(ToString::to_string).collect();
        assert_eq!(add, ["a.org:22/tcp", "a.org:8443", "b.org"]);
        let left_out: Vec<&str> = left_out.iter().map(|(target, _)| &**target).collect();
        let wanted = [
            "169.254.169.254:80",
            "Metadata.Google.Internal.:80",
            "bad.org:443",
            "no host!:443",
        ];
        assert_eq!(left_out, wanted);
    }

    #[test]
    fn a_name_in_the_hosts_file_comes_with_its_private_address() {
        let one = denied("mirror.corp", 8080, "network.no-rule");
        let config = UserConfig::parse("c", b"{}\n").unwrap();
        let listed = |name: &Name| match name.as_str() {
            "mirror.corp" => ["10.0.0.5", "93.184.216.34", "169.254.169.254"]
                .map(|address| address.parse().unwrap())
                .to_vec(),
            _ => Vec::new(),
        };
        let proposal = propose(&[&one], &config.0, listed);
        let all: Vec<String> = proposal.all().iter().map(ToString::to_string).collect();
        assert_eq!(all, ["mirror.corp:8080", "10.0.0.5:8080"]);
        assert_eq!(proposal.private.len(), 1);
    }

    #[test]
    fn a_name_that_only_a_flag_allowed_comes_with_its_address() {
        let led = |host: &str, address: &str, layer: &str| Egress {
            address: Some(address.into()),
            layer: Some(layer.into()),
            ..denied(host, 443, "network.address")
        };
        let denials = [
            led("mirror.corp", "10.0.0.5", "run"),
            led("faked.org", "198.18.0.7", "run"),
            led("known.org", "10.0.0.6", "run"),
            led("agent.org", "10.0.0.7", "agent file"),
            led("metadata.org", "169.254.169.254", "run"),
            Egress {
                raw: true,
                ..led("raw.org", "10.0.0.8", "run")
            },
        ];
        let denials: Vec<&Egress> = denials.iter().collect();
        let config = UserConfig::parse("c", b"sandbox_allowlist: ['known.org']\n").unwrap();
        let proposal = propose(&denials, &config.0, |_| Vec::new());
        let text = |rules: &[Rule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            text(&proposal.add),
            ["faked.org", "mirror.corp", "raw.org:443/tcp"]
        );
        let private: Vec<String> = (proposal.private.iter())
            .map(PrivateAddress::text)
            .collect();
        assert!(
            private.contains(
                &"198.18.0.7:443  # a reserved address that `faked.org` resolves to".into()
            ),
            "{private:?}"
        );
        assert_eq!(private.len(), 5, "{private:?}");
        let left_out: Vec<&str> = proposal
            .left_out
            .iter()
            .map(|(target, _)| &**target)
            .collect();
        assert_eq!(left_out, ["metadata.org:443"]);
    }
}
