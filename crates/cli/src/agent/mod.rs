//! `brig agent` and `brig alias`.

mod alias;
mod bare;
mod sandboxed;

use brig_config::{Disk, Run, resolve};

use crate::args::AgentRunArgs;
use crate::failure::Failure;
use crate::policy::load;
use crate::{answer, json, user};

pub use alias::run as alias;

pub async fn run(args: &AgentRunArgs) -> u8 {
    let failure = match attempt(args).await {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    if args.json {
        let agent = args.config.agent.as_ref().map(|agent| agent.as_str());
        let backend = args.config.backend.as_deref();
        json::print(&answer::failure(agent, None, backend, &failure));
    }
    failure.show();
    failure.exit()
}

/// All files are read here, and nowhere else.
async fn attempt(args: &AgentRunArgs) -> Result<u8, Failure> {
    let store = user::store()?;
    let run = resolve(&Disk, &store, &args.reference, args.sandbox).map_err(user::failed)?;
    load::show(&run.warnings);
    let command = command(&run, args)?;
    match run.choice.sandbox {
        true => sandboxed::run(args, run, command, &store).await,
        // Reached only when the decision was not to sandbox.
        false => bare::run(args, run, command).await,
    }
}

/// The command of the agent, and what was added on the command line.
fn command(run: &Run, args: &AgentRunArgs) -> Result<Vec<String>, Failure> {
    let mut words = args.args.clone();
    // The parser sees the first `--` twice.
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
