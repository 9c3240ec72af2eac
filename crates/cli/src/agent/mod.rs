//! `brig agent` and `brig alias`.

mod alias;
mod bare;
mod runtime;
mod sandboxed;
mod trust;

use brig_config::{Disk, Run, Store, resolve};
use brig_sandbox::PolicyFiles;

use crate::args::AgentRunArgs;
use crate::failure::Failure;
use crate::policy::load;
use crate::{answer, user};

pub(crate) use alias::run as alias;
pub(crate) use trust::run as trust;

pub(crate) async fn run(args: &AgentRunArgs) -> u8 {
    args.verbosity.apply();
    attempt(args).await.unwrap_or_else(|failure| {
        let run = answer::Run {
            agent: args.config.agent.as_ref().map(|agent| agent.as_str()),
            session: None,
            backend: args.config.backend.as_deref(),
        };
        answer::failed(run, &failure, args.json)
    })
}

/// All files are read here, each once.
async fn attempt(args: &AgentRunArgs) -> Result<u8, Failure> {
    let store = user::store()?;
    let run = resolve(&Disk, &store, &args.reference, args.sandbox).map_err(user::failed)?;
    load::show(&run.warnings);
    let command = command(&run, args)?;
    match run.choice.sandbox {
        true => sandboxed::run(args, run, command, &store).await,
        false => bare::run(args, run, command, &store).await,
    }
}

/// The policies of the flags, or else the user's default, and that of the agent file.
fn policies(args: &AgentRunArgs, run: &Run, store: &Store) -> PolicyFiles {
    let own = match args.policy.is_empty() {
        true => PolicyFiles::new(user::default_policy(store, &run.user)),
        false => PolicyFiles::new(&args.policy),
    };
    own.and(run.policy.clone(), run.files())
}

/// The command of the agent, and arguments from the command line.
fn command(run: &Run, args: &AgentRunArgs) -> Result<Vec<String>, Failure> {
    let mut words = args.args.clone();
    // The first `--` was doubled before parsing.
    if let Some(at) = words.iter().position(|word| word == "--") {
        words.remove(at);
    }
    let mut command = run.agent.command.clone();
    for word in words {
        let text = word.into_string();
        command.push(text.map_err(|word| {
            Failure::usage(format!("`{}` is not UTF-8", word.to_string_lossy()))
        })?);
    }
    Ok(command)
}
