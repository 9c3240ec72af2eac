//! What lists of commands cost: to create a session, and to start a program in a live one. Each
//! round runs every case once, so that whatever else the machine does meets all of them alike.
//!
//!     cargo bench -p brig-native                     both differences
//!     cargo bench -p brig-native -- --rounds 50      quicker

use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_native::{NativeBackend, command_root};
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::{AgentId, ExecutionStatus, Sandbox, Session, SessionConfig};

/// Denied names, half of them installed.
const NAMES: usize = 100;
/// What the cases themselves need.
const NEEDED: &[&str] = &["true", "env", "sh", "dash", "bash"];
const MOST_TO_CREATE: Duration = Duration::from_micros(2000);
const MOST_TO_START: Duration = Duration::from_micros(300);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (rounds, names) = (rounds(), names());
    let (free, listed) = (SessionConfig::default(), under(&names));
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .expect("a sandbox");
    let create = |config: &SessionConfig| {
        let began = Instant::now();
        let session = runtime.block_on(sandbox.create_session(&agent(), None, config.clone()));
        let took = began.elapsed();
        (session.expect("a session"), took)
    };
    let start = |session: &Session| {
        let began = Instant::now();
        let report = runtime.block_on(session.run(vec!["/bin/true".into()]));
        let took = began.elapsed();
        let status = report.expect("a report").status();
        assert_eq!(status, ExecutionStatus::Completed);
        took
    };
    let destroy = |session: Session| runtime.block_on(session.destroy()).expect("an end");

    let sessions = [&free, &listed].map(|config| create(config).0);
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..rounds + 5 {
        for step in 0..2 {
            let index = (round + step) % 2;
            let (session, created) = create([&free, &listed][index]);
            destroy(session);
            let started = start(&sessions[index]);
            if round >= 5 {
                times[index].push(created);
                times[2 + index].push(started);
            }
        }
    }
    sessions.into_iter().for_each(destroy);

    println!("\n{rounds} interleaved rounds, {NAMES} denied names, half of them installed\n");
    let [create_free, create_listed, start_free, start_listed] = times.map(Stats::of);
    for (what, free, listed, most) in [
        (
            "create a session",
            create_free,
            create_listed,
            MOST_TO_CREATE,
        ),
        (
            "exec /bin/true in a live one",
            start_free,
            start_listed,
            MOST_TO_START,
        ),
    ] {
        free.print(&format!("{what}, no lists"));
        listed.print(&format!("{what}, denylist"));
        let more = listed.median.saturating_sub(free.median);
        let verdict = if more <= most { "ok" } else { "missed" };
        let (more, most) = (milliseconds(more), milliseconds(most));
        println!("{verdict:<8} {more} more by the median, at most {most}\n");
    }
}

fn rounds() -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != "--rounds").skip(1);
    let given = args.next().and_then(|value| value.parse().ok());
    given.unwrap_or(200)
}

fn agent() -> AgentId {
    "bench".parse().expect("a valid name")
}

fn names() -> Vec<String> {
    let root = command_root(None).expect("the host's programs");
    let programs = root.programs();
    let installed = programs
        .iter()
        .filter_map(|path| path.file_name()?.to_str());
    let plain = |name: &&str| {
        let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        letters && !name.starts_with("python") && !NEEDED.contains(name)
    };
    let mut names: Vec<String> = installed.filter(plain).map(str::to_owned).collect();
    names.truncate(NAMES / 2);
    let missing = NAMES - names.len();
    names.extend((0..missing).map(|number| format!("brig-none-{number}")));
    names
}

fn under(names: &[String]) -> SessionConfig {
    let list: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let text = format!(
        "name: bench\ndefaults: {{action: allow}}\ncommand_denylist: [{}]\n",
        list.join(", ")
    );
    let loaded = Document::load("bench.yaml", text, Compat::Strict).expect("a policy");
    let policies = PolicySet::new(vec![loaded.document]);
    let config = SessionConfig::default().under(Arc::new(policies));
    config.expect("a configuration")
}

struct Stats {
    best: Duration,
    median: Duration,
    p99: Duration,
}

impl Stats {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a length"
        )]
        let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
        Self {
            best: at(0.0),
            median: at(0.5),
            p99: at(0.99),
        }
    }

    fn print(&self, name: &str) {
        let [best, median, p99] = [self.best, self.median, self.p99].map(milliseconds);
        println!("{name:<44} best {best}, median {median}, p99 {p99}");
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
