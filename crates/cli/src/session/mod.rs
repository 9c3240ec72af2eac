//! `brig session`: files and settings that persist across executions.

mod checkpoint;
mod copy;
mod copy_tree;
mod create;
pub(crate) mod destroy;
mod exec;
mod inspect;
pub(crate) mod list;
mod network;

use crate::args::{NetworkCommand, SessionCommand};

pub(crate) async fn run(command: &SessionCommand) -> u8 {
    let (result, as_json) = match command {
        SessionCommand::Exec(args) => return exec::run(args).await,
        SessionCommand::Create(args) => (create::run(args).await, args.json),
        SessionCommand::Ls(args) => (list::run(args), args.json),
        SessionCommand::Inspect(args) => (inspect::run(args), args.json),
        SessionCommand::Cp(args) => (copy::run(args).await, args.json),
        SessionCommand::Checkpoint(args) => (checkpoint::save(args).await, args.json),
        SessionCommand::Restore(args) => (checkpoint::restore(args).await, args.json),
        SessionCommand::Fork(args) => (checkpoint::fork(args).await, args.json),
        SessionCommand::Destroy(args) => (destroy::run(args).await, args.json),
        SessionCommand::Network(args) => {
            let as_json = match &args.command {
                NetworkCommand::Allow(args)
                | NetworkCommand::Block(args)
                | NetworkCommand::Unblock(args) => args.json,
                NetworkCommand::Show(args) => args.json,
            };
            (network::run(&args.command).await, as_json)
        }
    };
    result.unwrap_or_else(|failure| {
        failure.report(as_json);
        failure.exit()
    })
}
