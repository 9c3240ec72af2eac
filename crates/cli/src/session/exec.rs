//! `brig session exec`: one execution in a place that stays.

use brig_sandbox::Session;

use super::find;
use crate::args::ExecArgs;
use crate::drive::{Finished, drive};
use crate::failure::Failure;
use crate::policy::load;
use crate::{answer, json, network, run};

pub async fn run(args: &ExecArgs) -> u8 {
    match attempt(args).await {
        Ok(finished) => run::finish(&finished, args.work.streams(), args.json, true),
        Err(failure) => {
            if args.json {
                let agent = args.session.agent.as_ref().map(|agent| agent.as_str());
                let session = Some(args.session.id.as_str());
                json::print(&answer::failure(agent, session, None, &failure));
            }
            failure.show();
            failure.exit()
        }
    }
}

async fn attempt(args: &ExecArgs) -> Result<Finished, Failure> {
    let streams = args.work.streams();
    let mut request = run::request(args.work.read()?, streams, &args.env);
    request.cwd.clone_from(&args.work.cwd);
    request.facts = load::extra(&args.facts)?;
    request.timeout = args.timeout.or(args.work.tty.then_some(run::SITTING));
    let session = find::open_now(&args.session).await?;
    network::announce(&session.network()?, &[]);
    let finished = drive(session.start(request), run::attachment(streams, args.json)).await;
    let finished = finished.map_err(|failure| for_the_operator(failure, args));
    close(&session, finished).await
}

fn for_the_operator(failure: Failure, args: &ExecArgs) -> Failure {
    if failure.denied().is_none() {
        return failure;
    }
    let name = &args.session;
    let hint = format!(
        "for the operator: this was decided by the policy that session `{name}` was created under; `brig session inspect {name}` shows it, and another policy needs another session"
    );
    failure.with_hint(hint)
}

/// What went wrong first is what is told.
async fn close(
    session: &Session,
    finished: Result<Finished, Failure>,
) -> Result<Finished, Failure> {
    let closed = session.close().await;
    let finished = finished?;
    closed?;
    Ok(finished)
}
