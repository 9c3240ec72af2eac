//! The `brig` command line.

mod agent;
mod answer;
mod args;
mod audit;
mod backend;
mod commands;
mod doctor;
mod drive;
mod escape;
mod evidence;
mod exit;
mod failure;
mod interrupt;
mod json;
mod network;
mod output;
mod policy;
mod reference;
mod run;
mod session;
mod state;
mod table;
mod terminal;
mod units;
mod user;

use std::future::Future;
use std::io::Write;

use args::{AgentCommand, Cli, Command};
use clap::CommandFactory;
use failure::Failure;

fn main() {
    let code = match Cli::parse_args(std::env::args_os()) {
        Ok(cli) => command(&cli.command),
        Err(error) => usage(&error),
    };
    // Without unwinding: a thread may still wait for standard input.
    std::process::exit(code.into());
}

fn command(command: &Command) -> u8 {
    match command {
        Command::Run(args) => block_on(run::run(args)),
        Command::Session(args) => block_on(session::run(&args.command)),
        Command::Agent(args) => match &args.command {
            AgentCommand::Run(args) => block_on(agent::run(args)),
            AgentCommand::Schema(_) => write_out(brig_config::agent_schema().as_bytes()),
        },
        Command::Alias(args) => agent::alias(&args.command),
        Command::Sandbox(args) => network::run(&args.command),
        Command::Policy(args) => policy::run(&args.command),
        Command::Audit(args) => audit::run(args),
        Command::Commands(args) => commands::run(&args.command),
        Command::Doctor(args) => block_on(doctor::run(args)),
        Command::Completions(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "brig", &mut script);
            write_out(&script)
        }
        Command::Version(args) => {
            let version = env!("CARGO_PKG_VERSION");
            if args.json {
                json::print(&serde_json::json!({ "version": version }));
                0
            } else {
                write_out(format!("brig {version}\n").as_bytes())
            }
        }
        Command::Reference => write_out(reference::text().as_bytes()),
    }
}

/// One thread does it all: starting more would cost more than it gains.
fn block_on(work: impl Future<Output = u8>) -> u8 {
    match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            failure::error(&format!("cannot start: {}", failure::describe(&error)));
            exit::FAILED
        }
    }
}

fn write_out(bytes: &[u8]) -> u8 {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => 0,
        Err(_) => exit::of_broken_pipe(),
    }
}

/// Help and version are no errors. A wrong command line is one of Brig's own failures, so that
/// it cannot be taken for an exit code of the program.
fn usage(error: &clap::Error) -> u8 {
    if error.exit_code() == 0 {
        let _ = error.print();
        return 0;
    }
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .take_while(|arg| arg != "--")
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    if words.iter().any(|word| word == "--json") {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let failure = Failure::usage(first.strip_prefix("error: ").unwrap_or(first));
        json::print(
            &match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["run", ..] | ["session", "exec", ..] | ["agent", "run", ..] => {
                    answer::failure(None, None, None, &failure)
                }
                _ => serde_json::json!({ "error": failure.json() }),
            },
        );
    }
    let _ = error.print();
    exit::FAILED
}
