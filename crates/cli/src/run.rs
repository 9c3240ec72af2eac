//! `brig run`: one execution, and nothing of it stays.

use std::collections::BTreeSet;
use std::time::Duration;

use brig_sandbox::request::Work;
use brig_sandbox::{Limit, Report, Request, Sandbox};

use crate::args::{RunArgs, UnderArgs};
use crate::drive::{Attachment, Finished, drive};
use crate::failure::{self, Failure};
use crate::policy::load;
use crate::{answer, backend, evidence, exit, json, network, state, terminal, units, user};

/// Somebody sits at a terminal: no default ends what they are doing.
pub const SITTING: Duration = Duration::from_secs(24 * 60 * 60);

/// What of the caller's terminal the program gets.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    pub stdin: bool,
    pub terminal: bool,
}

pub async fn run(args: &RunArgs) -> u8 {
    match attempt(args).await {
        Ok(finished) => {
            if args.observe {
                failure::plain(&observed(&finished.report));
            }
            finish(&finished, args.work.streams(), args.json, false)
        }
        Err(failure) => {
            if args.json {
                let agent = args.config.agent();
                let backend = Some(args.config.backend());
                let agent = Some(agent.as_str());
                json::print(&answer::failure(agent, None, backend, &failure));
            }
            failure.show();
            failure.exit()
        }
    }
}

async fn attempt(args: &RunArgs) -> Result<Finished, Failure> {
    let mut config = args.config.session_config();
    config.observe_commands = args.observe;
    if args.work.tty && !config.limits.timeout.asked {
        config.limits.timeout = Limit::default_of(SITTING);
    }
    let backend = backend::choose(args.config.backend()).await?;
    let store = user::store()?;
    let user = user::load(&store)?;
    if let Some(policies) = load::under(&args.under)? {
        config = config.under(policies)?;
    }
    config.network = network::layered(config.network, &[], &user, &args.config.allow);
    user::keep_out(&config, &store)?;
    let streams = args.work.streams();
    let mut request = request(args.work.read()?, streams, &args.config.env);
    request.cwd.clone_from(&args.work.cwd);
    network::announce(&config.network, &args.config.allow);
    request.facts = load::extra(&args.facts)?;
    let folder = state::folder()?;
    let recorder = evidence::recorder(&folder)?;
    let sandbox = Sandbox::builder(backend)
        .recorder(recorder)
        .private_dir(folder)
        .build()?;
    let agent = args.config.agent();
    let start = sandbox.start_once(&agent, config, request);
    let done = drive(start, attachment(streams, args.json)).await;
    done.map_err(|failure| for_the_operator(failure, &args.under))
}

/// The programs that an execution started, as a policy that allows no others.
fn observed(report: &Report) -> String {
    const FOLDERS: [&str; 6] = [
        "/usr/local/sbin/",
        "/usr/local/bin/",
        "/usr/sbin/",
        "/usr/bin/",
        "/sbin/",
        "/bin/",
    ];
    let by_name = |program: &String| {
        let mut names = FOLDERS
            .iter()
            .filter_map(|folder| program.strip_prefix(folder));
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

/// Who is denied can't mend it; who wrote the policy can.
fn for_the_operator(failure: Failure, under: &UnderArgs) -> Failure {
    let Some(report) = failure.denied() else {
        return failure;
    };
    let files: Vec<String> = (under.policy.iter())
        .map(|file| file.display().to_string())
        .collect();
    let files = files.join(" ");
    let (place, words) = match (&under.folder.policy_root, &under.folder.policy_path) {
        (None, _) => (files.as_str(), files.clone()),
        (Some(root), path) => {
            let mut words = format!("--policy-root {}", root.display());
            if let Some(path) = path {
                words.push_str(&format!(" --policy-path {}", path.display()));
            }
            ("the policies of folders", words)
        }
    };
    let by = match &report.decision.rule {
        Some(rule) => format!("rule `{rule}` in {place}"),
        None => place.to_owned(),
    };
    let hint = format!(
        "for the operator: this was decided by {by}; `brig policy explain {words}` shows why and what would change it"
    );
    failure.with_hint(hint)
}

/// What is the same for `run` and `session exec`. The variables given win over our own.
pub fn request(work: Work, streams: Streams, given: &[(String, String)]) -> Request {
    let mut request = Request::new(work);
    request.env = given.to_vec();
    request.stream = true;
    if streams.stdin {
        request.stdin = Some(Box::new(tokio::io::stdin()));
    }
    if streams.terminal {
        request.terminal = Some(terminal::size());
        if let Ok(kind) = std::env::var("TERM") {
            request.env.insert(0, ("TERM".into(), kind));
        }
    }
    request
}

pub fn attachment(streams: Streams, json: bool) -> Attachment {
    Attachment {
        stdin: streams.stdin,
        terminal: streams.terminal,
        show: !json,
    }
}

/// Says what the output alone does not.
pub fn finish(finished: &Finished, streams: Streams, as_json: bool, in_session: bool) -> u8 {
    if as_json {
        json::print(&answer::success(&finished.report));
    }
    let Some(outcome) = &finished.report.outcome else {
        return finished.exit;
    };
    for (name, output) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        // Of a terminal everything was shown, whatever was kept.
        if output.truncated() && !as_json && !streams.terminal {
            failure::note(&format!(
                "{name} was cut after {} of {}; keep more with --output-max",
                units::size(output.bytes.len() as u64),
                units::size(output.total),
            ));
        }
    }
    if let Some(reason) = &outcome.killed {
        let governed = finished.report.decision.code != "policy.none";
        failure::error(&exit::explain(reason, in_session, governed));
    }
    finished.exit
}
