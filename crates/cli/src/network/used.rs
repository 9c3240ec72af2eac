//! `brig sandbox used`: how often each allowed host was reached.

use brig_egress::{Host, Rule};
use jiff::Timestamp;
use serde_json::json;

use super::recorded::{self, RecordedDecision};
use crate::args::UsedArgs;
use crate::failure::{self, Failure};
use crate::{json, table, user, write_out};

struct RuleUse<'a> {
    rule: &'a Rule,
    times: usize,
    last: Option<Timestamp>,
}

pub(crate) fn run(args: &UsedArgs) -> Result<u8, Failure> {
    let config = user::load(&user::store()?)?;
    let allowed = recorded::decisions(|decided| decided.egress.allowed)?;
    let uses: Vec<RuleUse<'_>> = (config.allow().iter())
        .map(|rule| count(rule, &allowed))
        .collect();
    let unused = || uses.iter().filter(|entry| entry.times == 0);
    if args.json {
        let entries: Vec<_> = (uses.iter())
            .map(|entry| json!({ "rule": entry.rule, "uses": entry.times, "last": entry.last }))
            .collect();
        let unused: Vec<_> = unused().map(|entry| entry.rule).collect();
        json::print(&json!({ "entries": entries, "unused": unused }));
        return Ok(0);
    }
    if uses.is_empty() {
        failure::note("no hosts are allowed");
        return Ok(0);
    }
    let rows: Vec<[String; 3]> = (uses.iter())
        .map(|entry| {
            let last = |at: Timestamp| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
            [
                entry.rule.to_string(),
                entry.times.to_string(),
                entry.last.map_or("never".into(), last),
            ]
        })
        .collect();
    let code = write_out(table::text(["HOST", "USES", "LAST"], &rows).as_bytes());
    let unused: Vec<String> = unused().map(|entry| format!("'{}'", entry.rule)).collect();
    if !unused.is_empty() {
        failure::hint(&format!("brig sandbox deny {}", unused.join(" ")));
    }
    Ok(code)
}

/// A connection counts for every rule that would have allowed it.
fn count<'a>(rule: &'a Rule, allowed: &[RecordedDecision]) -> RuleUse<'a> {
    let uses = allowed.iter().filter(|decided| {
        let egress = &decided.egress;
        Host::parse(&egress.host).is_ok_and(|host| match egress.port {
            0 => rule.pattern().matches(&host),
            port => rule.allows(&host, port) && (!egress.raw || rule.is_raw()),
        })
    });
    let (mut times, mut last) = (0, None);
    for decided in uses {
        times += 1;
        last = Some(decided.at);
    }
    RuleUse { rule, times, last }
}
