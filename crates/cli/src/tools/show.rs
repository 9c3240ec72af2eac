//! `brig tools ls` and `brig tools check`.

use std::sync::Arc;

use brig_policy::PolicySet;
use brig_sandbox::{Tool, ToolRegistry};
use serde_json::{Value, json};

use super::{ToolRequest, Tools, decide, is_listed, listed, sources};
use crate::args::{RunPolicyArgs, ToolsCheckArgs, ToolsListArgs};
use crate::failure::{self, Failure};
use crate::policy::load;
use crate::{exit, json, table, user, write_out};

pub(super) async fn list(args: &ToolsListArgs) -> u8 {
    args.verbosity.apply();
    attempt_list(args).await.unwrap_or_else(|failure| {
        failure.report(args.json);
        failure.exit()
    })
}

async fn attempt_list(args: &ToolsListArgs) -> Result<u8, Failure> {
    let policies = policies(&args.policies)?;
    let tools = Tools::all(&ToolRequest {
        flags: args.tools.clone(),
        user: user::load(&user::store()?)?.tools().clone(),
        ..ToolRequest::default()
    })
    .await?;
    let missing = missing(policies.as_deref(), &tools.registry);
    if args.json {
        let all = tools.registry.iter();
        let all: Vec<Value> = all.map(|tool| object(tool, policies.as_deref())).collect();
        json::print(&json!({ "tools": all, "missing": missing }));
        tools.close().await;
        return Ok(0);
    }
    let rows: Vec<[String; 4]> = (tools.registry.iter())
        .map(|tool| row(tool, policies.as_deref()))
        .collect();
    tools.close().await;
    for name in missing {
        failure::warning(&format!(
            "the policy lists `{name}`, but nothing provides it"
        ));
    }
    if rows.is_empty() {
        failure::note("no tools are registered");
        return Ok(0);
    }
    let text = table::text(["TOOL", "ALLOWED", "FROM", "DESCRIPTION"], &rows);
    Ok(write_out(text.as_bytes()))
}

/// The policies of the flags or the user's default.
pub(super) fn policies(args: &RunPolicyArgs) -> Result<Option<Arc<PolicySet>>, Failure> {
    let store = user::store()?;
    let default = user::default_policy(&store, &user::load(&store)?);
    load::load(&args.files(default)?, args.compat.compat())
}

/// Tools that a policy lists and nobody provides.
fn missing(policies: Option<&PolicySet>, registry: &ToolRegistry) -> Vec<String> {
    let listed = listed(policies).into_iter();
    listed.filter(|name| registry.get(name).is_none()).collect()
}

/// Whether code may call a tool, as far as that does not depend on the arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    /// Only with an approval.
    Asks,
    No,
}

impl Answer {
    fn of(policies: &PolicySet, tool: &Arc<dyn Tool>) -> Self {
        let name = tool.spec().name.as_str();
        let decision = decide(policies, name, &Default::default());
        match is_listed(policies, name) {
            true if decision.allowed => Self::Yes,
            true if decision.needs_approval => Self::Asks,
            _ => Self::No,
        }
    }
}

fn object(tool: &Arc<dyn Tool>, policies: Option<&PolicySet>) -> Value {
    let spec = tool.spec();
    json!({
        "name": spec.name,
        "source": spec.source,
        "description": spec.description,
        "input_schema": spec.input_schema,
        "output_schema": spec.output_schema,
        "timeout_ms": spec.timeout.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        "allowed": policies.map(|policies| Answer::of(policies, tool) != Answer::No),
        "needs_approval": policies.map(|policies| Answer::of(policies, tool) == Answer::Asks),
    })
}

fn row(tool: &Arc<dyn Tool>, policies: Option<&PolicySet>) -> [String; 4] {
    let spec = tool.spec();
    let allowed = match policies.map(|policies| Answer::of(policies, tool)) {
        None => "-",
        Some(Answer::Yes) => "yes",
        Some(Answer::Asks) => "approval",
        Some(Answer::No) => "no",
    };
    let description = spec.description.lines().next().unwrap_or_default();
    let description: String = description.chars().take(60).collect();
    [
        spec.name.to_string(),
        allowed.into(),
        spec.source.clone(),
        description,
    ]
}

pub(super) async fn check(args: &ToolsCheckArgs) -> u8 {
    args.verbosity.apply();
    attempt_check(args).await.unwrap_or_else(|failure| {
        failure.report(args.json);
        failure.exit()
    })
}

/// Every source for itself, so that all problems are seen.
async fn attempt_check(args: &ToolsCheckArgs) -> Result<u8, Failure> {
    let policies = policies(&args.policies)?;
    let mut all = sources::of_flags(&args.tools)?;
    all.extend(sources::of_file(user::load(&user::store()?)?.tools())?);
    let (mut tools, mut checked) = (Tools::default(), Vec::new());
    for source in all {
        let (name, server) = (source.name().to_owned(), source.is_server());
        let before = tools.registry.len();
        let problem = tools.add(source).await.err();
        let count = tools.registry.len() - before;
        checked.push((name, server, count, problem));
    }
    let missing = missing(policies.as_deref(), &tools.registry);
    let valid = missing.is_empty() && checked.iter().all(|(.., problem)| problem.is_none());
    tools.close().await;
    if args.json {
        let checked: Vec<Value> = (checked.iter())
            .map(|(name, server, count, problem)| {
                let kind = if *server { "mcp-server" } else { "command" };
                let error = problem.as_ref().map(Failure::json);
                json!({ "name": name, "kind": kind, "tools": count, "error": error })
            })
            .collect();
        json::print(&json!({ "valid": valid, "sources": checked, "missing": missing }));
    } else {
        for (name, _, count, problem) in checked {
            match problem {
                None => write_out(format!("{name}: {count} tools\n").as_bytes()),
                Some(problem) => {
                    problem.show();
                    exit::FAILED
                }
            };
        }
        for name in missing {
            failure::error(&format!(
                "the policy lists `{name}`, but nothing provides it"
            ));
        }
    }
    Ok(if valid { 0 } else { exit::FAILED })
}
