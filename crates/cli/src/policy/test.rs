use std::fmt::Write as _;

use brig_policy::Cases;
use brig_reason::ReasonCode;
use brig_sandbox::read_policy;
use serde_json::json;

use super::load;
use crate::args::TestArgs;
use crate::failure::Failure;
use crate::{escape, exit, json, write_out};

pub(crate) fn run(args: &TestArgs) -> Result<u8, Failure> {
    let policies = load::load_one(&args.file, args.compat.compat())?;
    let name = args.cases.display().to_string();
    let cases = Cases::load(&name, read_policy(&args.cases)?).map_err(|problems| {
        load::show(&problems.0);
        Failure::new(
            ReasonCode::PolicyInvalid,
            format!("file `{name}` is invalid; nothing was run"),
        )
    })?;
    let results = cases.run(&policies);
    let failed = (results.iter())
        .filter(|result| !result.differences.is_empty())
        .count();
    let written = if args.json {
        json::print(&json!({
            "passed": results.len() - failed,
            "failed": failed,
            "digest": policies.digest(),
            "cases": results,
            "error": null,
        }));
        0
    } else {
        let mut text = String::new();
        for result in &results {
            let line = if result.differences.is_empty() {
                format!("ok      {}", result.name)
            } else {
                let differences = result.differences.join("; ");
                format!(
                    "FAILED  {} ({name}:{}): {differences}",
                    result.name, result.at.line
                )
            };
            let _ = writeln!(text, "{}", escape::line(&line));
        }
        let _ = writeln!(text, "{} passed, {failed} failed", results.len() - failed);
        write_out(text.as_bytes())
    };
    Ok(if failed == 0 { written } else { exit::NO })
}
