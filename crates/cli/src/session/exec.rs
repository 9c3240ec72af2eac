//! `brig session exec`: one execution in a session.

use brig_sandbox::{Request, Session};

use crate::args::ExecArgs;
use crate::denials::RunKind;
use crate::drive::{Finished, INTERACTIVE_TIMEOUT, drive};
use crate::exit::LimitOrigins;
use crate::failure::Failure;
use crate::policy::{explain, load, reproduce};
use crate::{answer, approvals, assemble, network, script};

pub(crate) async fn run(args: &ExecArgs) -> u8 {
    args.verbosity.apply();
    if args.explain {
        return explain(args).await.unwrap_or_else(|failure| {
            failure.report(args.json.is_some());
            failure.exit()
        });
    }
    match attempt(args).await {
        Ok(finished) => answer::finished(&finished, args.json, RunKind::Session(&args.session.id)),
        Err(failure) => {
            let run = answer::Run {
                agent: args.session.agent.as_ref().map(|agent| agent.as_str()),
                session: Some(args.session.id.as_str()),
                backend: None,
            };
            answer::failed(run, &failure.in_session(), args.json)
        }
    }
}

async fn attempt(args: &ExecArgs) -> Result<Finished, Failure> {
    let attachment = args.work.attachment(args.json)?;
    let work = args.work.read()?;
    let mut request = attachment.request(work, &args.env.read()?, args.work.cwd.as_ref());
    request.script = args.work.script().and_then(script::name);
    request.facts = load::extra(&args.facts)?;
    request.timeout = (args.timeout).or(args.work.tty.then_some(INTERACTIVE_TIMEOUT));
    request.output_bytes = args.output_max;
    let approver = approvals::approver(args.approvals.approvals, attachment)?;
    let opened = assemble::open_session_to_run(&args.session, &args.tools, approver);
    let (session, tools) = opened.await?;
    network::announce(&session.network()?, &[]);
    let limits = LimitOrigins::of(session.config());
    let finished = drive(session.start(request), attachment).await;
    tools.close().await;
    let finished = finished.map(|finished| Finished { limits, ..finished });
    let finished = finished.map_err(|failure| with_policy_hint(failure, args));
    close(&session, finished).await
}

/// What the policies of the session decide on the same request.
async fn explain(args: &ExecArgs) -> Result<u8, Failure> {
    let mut request = Request::new(args.work.read()?);
    request.facts = load::extra(&args.facts)?;
    let session = assemble::open_session(&args.session).await?;
    let code = match session.config().policies() {
        Some(policies) => {
            Ok(explain::request(policies, &request, session.agent(), args.json.is_some()).await)
        }
        None => Err(Failure::usage(format!(
            "session `{}` has no policy",
            args.session
        ))),
    };
    session.close().await?;
    code
}

/// Tells the operator where the policy that denied the run comes from.
fn with_policy_hint(failure: Failure, args: &ExecArgs) -> Failure {
    // The hint of a missing approval says more.
    if failure
        .denied()
        .is_none_or(|denial| denial.approval().is_some())
    {
        return failure;
    }
    let (name, command) = (&args.session, reproduce::explain_command(2));
    let hint = format!(
        "for the operator: this was decided by the policy that session `{name}` was created with; \
         {command} shows why, and a different policy needs a new session"
    );
    failure.with_hint(hint)
}

/// The first failure is the one that is reported.
async fn close(
    session: &Session,
    finished: Result<Finished, Failure>,
) -> Result<Finished, Failure> {
    let closed = session.close().await;
    let finished = finished?;
    closed?;
    Ok(finished)
}
