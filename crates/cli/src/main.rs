//! The `brig` command line.

mod agent;
mod answer;
mod approvals;
mod args;
mod assemble;
mod audit;
mod backend;
mod commands;
mod complete;
mod denials;
mod doctor;
mod drive;
mod escape;
mod exit;
mod failure;
mod help;
mod interrupt;
mod json;
mod launch;
mod log;
mod man;
#[cfg(feature = "mcp")]
mod mcp;
mod network;
mod output;
mod policy;
mod prune;
mod recorder;
mod reference;
mod run;
mod script;
mod session;
mod settings;
mod state;
mod stdout;
mod stream;
mod table;
mod terminal;
mod tools;
mod units;
mod user;
mod user_change;
mod version;

use std::future::Future;
use std::io::Write;

use args::{AgentCommand, Cli, Command};
use brig_reason::ReasonCode;
use failure::Failure;
use rustix::process::{Resource, getrlimit, setrlimit};

fn main() {
    complete::answer();
    if let Err(error) = brig_linux::process::own_signals() {
        failure::error(&format!("cannot start: {}", failure::describe(&error)));
        std::process::exit(exit::FAILED.into());
    }
    if let Err(failure) = log::init().and_then(|()| open_files()) {
        failure.show();
        std::process::exit(failure.exit().into());
    }
    brig_sandbox::on_wait(failure::note);
    let code = match Cli::parse_args(std::env::args_os()) {
        Ok(cli) => command(&cli.command),
        Err(error) => usage(&error),
    };
    // JSON that could not be written changes the exit code.
    let code = json::failed().unwrap_or(code);
    // Without unwinding: a thread may still wait for standard input.
    std::process::exit(code.into());
}

/// How many files may be open. A run takes about 40.
const FILES: u64 = 256;
const LEAST_FILES: u64 = 64;

/// Raises the limit on open files to what Brig needs, as far as that is allowed.
fn open_files() -> Result<(), Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    let enough = |now: Option<u64>, wanted: u64| now.is_none_or(|now| now >= wanted);
    if !enough(limit.current, FILES) {
        limit.current = limit
            .maximum
            .map_or(Some(FILES), |most| Some(most.min(FILES)));
        // What counts is what is in force then.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let now = getrlimit(Resource::Nofile).current;
    if enough(now, LEAST_FILES) {
        return Ok(());
    }
    let now = now.unwrap_or_default();
    Err(Failure::new(
        ReasonCode::IoFailed,
        format!("cannot start: only {now} files may be open, and Brig needs {LEAST_FILES}"),
    )
    .with_hint("raise the limit: ulimit -n 1024"))
}

fn command(command: &Command) -> u8 {
    match command {
        Command::Run(args) => block_on(run::run(args)),
        Command::Session(args) => block_on(session::run(&args.command)),
        Command::Agent(args) => match &args.command {
            AgentCommand::Run(args) => block_on(agent::run(args)),
            AgentCommand::Trust(args) => agent::trust(args),
            AgentCommand::Schema(_) => write_out(brig_config::agent_schema().as_bytes()),
        },
        Command::Alias(args) => agent::alias(&args.command),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => block_on(mcp::run(args)),
        Command::Sandbox(args) => network::run(&args.command),
        Command::Approvals(args) => approvals::run(&args.command),
        Command::Policy(args) => block_on(policy::run(&args.command)),
        Command::Audit(args) => audit::run(args),
        Command::Commands(args) => commands::run(&args.command),
        Command::Tools(args) => block_on(tools::run(&args.command)),
        Command::Config(args) => settings::run(&args.command),
        Command::Doctor(args) => block_on(doctor::run(args)),
        Command::Prune(args) => block_on(prune::run(args)),
        Command::Completions(args) => write_out(&complete::script(args.shell)),
        Command::Version(args) => {
            if args.json {
                json::print(&version::json());
                0
            } else {
                write_out(format!("brig {}\n", version::text()).as_bytes())
            }
        }
        Command::Help(args) => help::run(args),
        Command::Reference => write_out(reference::text().as_bytes()),
        Command::Man(args) => man::run(&args.directory),
    }
}

/// On one thread: starting more would cost more than it gains.
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

/// Text on stdout. On a terminal, control sequences are shown and not interpreted.
fn write_out(bytes: &[u8]) -> u8 {
    let mut stdout = stdout::Stdout::new(stdout::OutputFormat::Text);
    match stdout.write_all(bytes).and_then(|()| stdout.finish()) {
        Ok(()) => 0,
        Err(error) => exit::of_unwritten(&error),
    }
}

/// Help and version are not errors. A wrong command line exits like other failures of Brig, so that
/// its code is not taken for one of the program.
fn usage(error: &clap::Error) -> u8 {
    if error.exit_code() == 0 {
        return match error.print().and_then(|()| std::io::stdout().flush()) {
            Ok(()) => 0,
            Err(error) => exit::of_unwritten(&error),
        };
    }
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .take_while(|arg| arg != "--")
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    if words
        .iter()
        .any(|word| word == "--json" || word.starts_with("--json="))
    {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let failure = Failure::usage(first.strip_prefix("error: ").unwrap_or(first));
        json::print(
            &match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["run", ..] | ["session", "exec", ..] | ["agent", "run", ..] => {
                    answer::object(answer::Run::default(), &failure)
                }
                _ => serde_json::json!({ "error": failure.json() }),
            },
        );
    }
    let _ = error.print();
    exit::FAILED
}
