//! `brig tools call`.

use std::time::Instant;

use brig_policy::PolicySet;
use brig_reason::ReasonCode;
use brig_sandbox::{Arguments, ToolError};
use serde_json::{Value, json};

use super::{ToolRequest, Tools, decide, is_listed, show};
use crate::args::ToolsCallArgs;
use crate::failure::{self, Failure};
use crate::{exit, json, user, write_out};

/// The largest arguments, in bytes.
const LARGEST: u64 = 1 << 20;

pub(super) async fn run(args: &ToolsCallArgs) -> u8 {
    args.verbosity.apply();
    attempt(args).await.unwrap_or_else(|failure| {
        failure.report(args.json);
        failure.exit()
    })
}

async fn attempt(args: &ToolsCallArgs) -> Result<u8, Failure> {
    let arguments = arguments(&args.arguments)?;
    let policies = show::policies(&args.policies)?;
    if let Some(policies) = &policies {
        permitted(policies, &args.name, &arguments)?;
    }
    let tools = Tools::all(&ToolRequest {
        flags: args.tools.clone(),
        user: user::load(&user::store()?)?.tools().clone(),
        ..ToolRequest::default()
    })
    .await?;
    let answer = call(args, &tools, arguments).await;
    tools.close().await;
    let (result, took) = answer?;
    if args.json {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        json::print(&json!({ "tool": args.name, "result": result, "duration_ms": took }));
        return Ok(0);
    }
    let text = match result {
        Value::String(text) => text,
        other => serde_json::to_string_pretty(&other).unwrap_or_default(),
    };
    Ok(write_out(format!("{text}\n").as_bytes()))
}

/// What the gate would answer to code. Who calls by hand is the operator, so nobody is asked to approve it.
fn permitted(policies: &PolicySet, name: &str, arguments: &Arguments) -> Result<(), Failure> {
    let denied = |code, message: String| Failure::new(code, message).with_exit(exit::DENIED);
    if !is_listed(policies, name) {
        let message = format!("the policy does not list the tool `{name}`");
        return Err(denied(ReasonCode::ToolNotAllowed, message));
    }
    let decision = decide(policies, name, arguments);
    if decision.needs_approval {
        failure::note(&format!(
            "called by code, this would wait for an approval: {}",
            decision.reason
        ));
    } else if !decision.allowed {
        let message = format!("the policy denies this call: {}", decision.reason);
        let failure = denied(ReasonCode::ToolDenied, message);
        return Err(failure.with_hint("`brig policy explain` shows what would change it"));
    }
    Ok(())
}

async fn call(
    args: &ToolsCallArgs,
    tools: &Tools,
    arguments: Arguments,
) -> Result<(Value, std::time::Duration), Failure> {
    let Some(tool) = tools.registry.get(&args.name) else {
        let failure = Failure::new(
            ReasonCode::ToolUnknown,
            format!("no tool is named `{}`", args.name),
        );
        let nearest = tools.registry.nearest(&args.name);
        return Err(match nearest.first() {
            Some(meant) => failure.with_hint(format!("did you mean `{meant}`?")),
            None => failure.with_hint("run `brig tools ls` to list them"),
        });
    };
    let arguments = Value::Object(arguments);
    if let Err(problem) = brig_sandbox::tools::check_arguments(tool.spec(), &arguments) {
        let message = format!("invalid arguments for `{}`: {problem}", args.name);
        let failure = Failure::new(ReasonCode::ToolArguments, message);
        return Err(failure.with_hint("`brig tools ls --json` shows the schema"));
    }
    let Value::Object(arguments) = arguments else {
        return Err(Failure::usage("the arguments are not a JSON object"));
    };
    let begun = Instant::now();
    let within = tool.spec().timeout.unwrap_or(args.timeout);
    let answer = tokio::time::timeout(within, tool.call(arguments)).await;
    let answer = answer.unwrap_or(Err(ToolError::TimedOut(within)));
    match answer {
        Ok(result) => Ok((result, begun.elapsed())),
        Err(error) => Err(Failure::new(error.code(), error.to_string())),
    }
}

fn arguments(text: &str) -> Result<Arguments, Failure> {
    let invalid = |why: String| Failure::new(ReasonCode::ToolArguments, why);
    let read = match text {
        "-" => brig_input::read_stream(std::io::stdin(), LARGEST)
            .map_err(|error| Failure::file("-", &error))?,
        text => text.as_bytes().to_vec(),
    };
    match serde_json::from_slice(&read) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(invalid("the arguments are not a JSON object".into())),
        Err(error) => Err(invalid(format!(
            "the arguments are not valid JSON: {error}"
        ))),
    }
}
