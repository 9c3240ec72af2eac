//! `brig run`: one execution in a sandbox that is removed afterwards.

use std::collections::BTreeSet;
use std::path::PathBuf;

use brig_sandbox::{Report, Request};

use crate::args::{RunArgs, RunPolicyArgs};
use crate::assemble::{RunSpec, Storage, assemble};
use crate::denials::RunKind;
use crate::drive::Finished;
use crate::failure::{self, Failure};
use crate::policy::{explain, load, reproduce};
use crate::tools::ToolRequest;
use crate::{answer, approvals, script, user};

pub(crate) async fn run(args: &RunArgs) -> u8 {
    args.verbosity.apply();
    if args.explain {
        return explain(args).await.unwrap_or_else(|failure| {
            failure.report(args.json.is_some());
            failure.exit()
        });
    }
    match attempt(args).await {
        Ok(finished) => {
            if args.observe {
                failure::plain(&observed(&finished.report));
            }
            answer::finished(&finished, args.json, RunKind::Run)
        }
        Err(failure) => {
            let agent = args.config.agent();
            let user = user::readable();
            let run = answer::Run {
                agent: Some(agent.as_str()),
                session: None,
                backend: Some(args.config.backend(user.defaults(), None)),
            };
            answer::failed(run, &failure, args.json)
        }
    }
}

/// What the policies decide on the same request.
async fn explain(args: &RunArgs) -> Result<u8, Failure> {
    let store = user::store()?;
    let default = user::default_policy(&store, &user::load(&store)?);
    let policies = load::load(
        &args.policies.files(default)?,
        args.policies.compat.compat(),
    )?
    .ok_or_else(|| Failure::usage("no policy given").with_hint("add --policy FILE"))?;
    let mut request = Request::new(args.work.read()?);
    request.facts = load::extra(&args.facts)?;
    let agent = args.config.agent();
    Ok(explain::request(&policies, &request, &agent, args.json.is_some()).await)
}

async fn attempt(args: &RunArgs) -> Result<Finished, Failure> {
    let attachment = args.work.attachment(args.json)?;
    let store = user::store()?;
    let user = user::load(&store)?;
    let default = user::default_policy(&store, &user);
    let backend = args.config.backend(user.defaults(), None);
    let mut config = args.config.session_config(user.defaults(), backend)?;
    let env = config.env.clone();
    config.observe_commands = args.observe;
    attachment.set_timeout(&mut config);
    // A script on the host is read first: where it is decides what is mounted.
    let script = match args.work.script() {
        Some(file) => {
            let work = args.work.read()?;
            let placed = script::place(file, &work, args.script_dir, backend, &mut config);
            Some((work, placed))
        }
        None if args.script_dir == Some(true) => {
            return Err(Failure::usage("--script-dir is for a script on the host"));
        }
        None => None,
    };
    let run = assemble(RunSpec {
        agent: args.config.agent(),
        backend: backend.to_owned(),
        config,
        policies: args.policies.files(default.clone())?,
        compat: args.policies.compat.compat(),
        layers: brig_config::layers(&[], &user, &args.config.allow),
        tools: ToolRequest {
            flags: args.tools.clone(),
            user: user.tools().clone(),
            ..ToolRequest::default()
        },
        approver: approvals::approver(args.approvals.approvals, attachment)?,
        storage: Storage::None,
    })
    .await?;
    // After the rest was checked, so that a mistake does not wait for standard input.
    let (work, name) = match script {
        Some(script) => script,
        None => (args.work.read()?, None),
    };
    let mut request = attachment.request(work, &env, args.work.cwd.as_ref());
    request.script = name;
    request.facts = load::extra(&args.facts)?;
    let finished = run.run_once(request, attachment).await;
    finished.map_err(|failure| with_policy_hint(failure, &args.policies, default))
}

/// The programs that an execution started, as a policy that allows no others.
fn observed(report: &Report) -> String {
    const DIRECTORIES: [&str; 6] = [
        "/usr/local/sbin/",
        "/usr/local/bin/",
        "/usr/sbin/",
        "/usr/bin/",
        "/sbin/",
        "/bin/",
    ];
    let by_name = |program: &String| {
        let mut names = DIRECTORIES
            .iter()
            .filter_map(|directory| program.strip_prefix(directory));
        let name = names.find(|name| !name.contains('/'));
        name.map_or_else(|| program.clone(), str::to_owned)
    };
    let programs: BTreeSet<String> = report.attempted.programs.iter().map(by_name).collect();
    let mut text = String::from("command_allowlist:");
    if programs.is_empty() {
        text.push_str(" []");
    }
    for program in programs {
        text.push_str(&format!("\n  - {}", serde_json::Value::String(program)));
    }
    text
}

/// Tells the operator which policy denied the run. The agent that was denied cannot change it.
fn with_policy_hint(failure: Failure, args: &RunPolicyArgs, default: Option<PathBuf>) -> Failure {
    // The hint of a missing approval says more.
    let Some(denial) = failure
        .denied()
        .filter(|denial| denial.approval().is_none())
    else {
        return failure;
    };
    let default = default.iter().filter(|_| args.policy.is_empty());
    let files: Vec<String> = (args.policy.iter().chain(default))
        .map(|file| file.display().to_string())
        .collect();
    let place = match &args.directory.policy_root {
        None => files.join(" "),
        Some(_) => "the directory policies".into(),
    };
    let by = match denial.rule() {
        Some(rule) => format!("rule `{rule}` in {place}"),
        None => place,
    };
    let command = reproduce::explain_command(1);
    let hint = format!(
        "for the operator: this was decided by {by}; {command} shows why and what would change it"
    );
    failure.with_hint(hint)
}
