//! From what was typed to a session.

use std::sync::Arc;

use brig_sandbox::{Backend, Sandbox, Session, SessionDetails, SessionInfo};

use crate::args::SessionName;
use crate::failure::Failure;
use crate::{backend, state, user};

/// The code of a failure that some commands forgive.
pub const UNKNOWN: &str = "session.unknown";

/// Everything that `brig session` knows of, whatever it runs in.
pub fn sandbox() -> Result<Sandbox, Failure> {
    state::sandbox(backend::native())
}

/// The one session of that name, and what is known of it without opening it.
pub fn find(sandbox: &Sandbox, name: &SessionName) -> Result<SessionInfo, Failure> {
    let mut found: Vec<SessionInfo> = sandbox
        .list_sessions()?
        .into_iter()
        .filter(|info| info.id == name.id)
        .filter(|info| name.agent.as_ref().is_none_or(|agent| *agent == info.agent))
        .collect();
    match (found.len(), found.pop()) {
        (1, Some(info)) => Ok(info),
        (0, _) => Err(unknown(name)),
        (_, last) => {
            let names: Vec<String> = found
                .iter()
                .chain(&last)
                .map(|info| format!("{}/{}", info.agent, info.id))
                .collect();
            Err(Failure::new(
                "session.ambiguous",
                format!("several agents have a session `{}`", name.id),
            )
            .with_hint(format!("name one of {}", names.join(", "))))
        }
    }
}

pub async fn open(name: &SessionName) -> Result<Session, Failure> {
    let info = find(&sandbox()?, name)?;
    let sandbox = state::sandbox(backend_of(&info).await?)?;
    Ok(sandbox.open_session(&info.agent, &info.id).await?)
}

/// For what runs in sessions: under the user's lists as they are now.
pub async fn open_now(name: &SessionName) -> Result<Session, Failure> {
    let info = find(&sandbox()?, name)?;
    let user = user::load(&user::store()?)?;
    let sandbox = state::sandbox_under(backend_of(&info).await?, &user)?;
    Ok(sandbox.open_session(&info.agent, &info.id).await?)
}

pub async fn inspect(name: &SessionName) -> Result<SessionDetails, Failure> {
    let info = find(&sandbox()?, name)?;
    let sandbox = state::sandbox(backend_of(&info).await?)?;
    Ok(sandbox.inspect_session(&info.agent, &info.id)?)
}

async fn backend_of(info: &SessionInfo) -> Result<Arc<dyn Backend>, Failure> {
    match info.backend.as_str() {
        // Its record can't be read, which any backend will say.
        "" => Ok(backend::native()),
        name => backend::choose(name).await,
    }
}

fn unknown(name: &SessionName) -> Failure {
    Failure::new(UNKNOWN, format!("no session `{name}`"))
        .with_hint("brig session ls shows those there are")
}
