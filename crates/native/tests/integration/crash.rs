//! Whatever moment a process is killed at, what it was answered is there, and nothing is mixed up.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use brig_native::NativeBackend;
use brig_sandbox::backend::StateKind;
use brig_sandbox::{
    AgentId, Backend, CheckpointName, Error, Sandbox, Session, SessionConfig, SessionId,
};
use brig_testing::{again, test_name};

const CHILD: &str = "BRIG_TEST_STATE";
/// What the name of a state folder ends with whose sessions start from copies of their files.
const COPIED: &str = "copied";
const ROUNDS: u32 = 25;
/// More are added on a machine on which the child gets slower, until this many.
const MOST_ROUNDS: u32 = 300;
/// How often the child must have changed something in all.
const CHANGES: u32 = 20;

fn sandbox(state: &Path) -> Sandbox {
    let backend = if state.ends_with(COPIED) {
        NativeBackend::with_copied_layers()
    } else {
        NativeBackend::new()
    };
    Sandbox::builder(Arc::new(backend))
        .state_dir(state)
        .build()
        .expect("sandbox")
}

fn names() -> (AgentId, SessionId) {
    ("agent".parse().expect("name"), "s".parse().expect("name"))
}

async fn shell(session: &Session, script: &str) -> String {
    let command = ["/bin/sh", "-c", script].map(String::from).to_vec();
    let outcome = session.run(command).await.expect("report").outcome;
    assert!(outcome.success(), "{script}: {outcome:?}");
    String::from_utf8(outcome.stdout.bytes).expect("text")
}

/// Says what it is about to do and what was done, one line each.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("parent");
}

/// Changes, saves, restores and re-opens until it is killed.
#[tokio::test]
async fn child() {
    let Some(state) = std::env::var_os(CHILD) else {
        return;
    };
    let (sandbox, (agent, id)) = (sandbox(state.as_ref()), names());
    let session = match sandbox.open_session(&agent, &id).await {
        Ok(session) => session,
        Err(Error::NoSession { .. }) => {
            let created = sandbox
                .create_session(&agent, Some(id), SessionConfig::default())
                .await;
            created.expect("session")
        }
        Err(error) => panic!("{error}"),
    };
    let mut value: u32 = shell(&session, "cat value 2>/dev/null || echo 0")
        .await
        .trim()
        .parse()
        .expect("number");
    for round in 1.. {
        value += 1;
        say(&format!("try value {value}"));
        let script =
            format!("echo {value} > value; mkdir -p d; rm -f d/*; echo {value} > d/{value}");
        shell(&session, &script).await;
        say(&format!("did value {value}"));
        let name: CheckpointName = format!("c{}", round % 3).parse().expect("name");
        if round % 2 == 0 {
            say(&format!("try drop {name}"));
            match session.delete_checkpoint(&name).await {
                Ok(()) | Err(Error::NoCheckpoint(_)) => {}
                Err(error) => panic!("{error}"),
            }
            session.save_state(&name).await.expect("saved");
            say(&format!("did save {name} {value}"));
        }
        if round % 5 == 0 {
            session.close().await.expect("closed");
        }
    }
}

/// What the child reported before it was killed.
#[derive(Default)]
struct ChildLog {
    tried: Option<u32>,
    done: Option<u32>,
    saved: BTreeMap<String, u32>,
}

impl ChildLog {
    fn hear(&mut self, line: &str) {
        // The harness of the child writes to the same stream.
        let line = line.rsplit("... ").next().unwrap_or(line);
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["try", "value", value] => self.tried = value.parse().ok(),
            ["did", "value", value] => self.done = value.parse().ok(),
            ["try", "drop", name] => drop(self.saved.remove(name)),
            ["did", "save", name, value] => {
                self.saved
                    .insert(name.into(), value.parse().expect("number"));
            }
            _ => {}
        }
    }
}

/// Parts of 1000, from a seed that is printed and can be given.
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let given = std::env::var("BRIG_TEST_SEED").ok();
        let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            u64::from(now.expect("clock").subsec_nanos())
        });
        println!("BRIG_TEST_SEED={seed}");
        Self(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) % 1000).expect("small")
    }
}

fn start(state: &Path) -> Child {
    again(&test_name!(child))
        .arg("--test-threads=1")
        .env(CHILD, state)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("child")
}

/// How long a child takes here to change something for the first time.
fn first_change(state: &Path) -> Duration {
    let begun = Instant::now();
    let mut child = start(state);
    let output = BufReader::new(child.stdout.take().expect("stdout"));
    let mut lines = output.lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "did value 1"), "it ended");
    let taken = begun.elapsed();
    child.kill().expect("kill");
    child.wait().expect("wait");
    taken
}

fn kill_after(state: &Path, wait: Duration, told: &mut ChildLog) {
    let mut child = start(state);
    let output = BufReader::new(child.stdout.take().expect("stdout"));
    let reader =
        std::thread::spawn(move || output.lines().map_while(Result::ok).collect::<Vec<_>>());
    std::thread::sleep(wait);
    child.kill().expect("kill");
    child.wait().expect("wait");
    for line in reader.join().expect("reader") {
        told.hear(&line);
    }
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_nothing_that_was_answered() {
    kill_at_any_moment("stacked").await;
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_nothing_of_copied_files() {
    // Otherwise it is what the test above does.
    let offer = NativeBackend::new().probe(&SessionConfig::default()).await;
    if offer.expect("it can be used").state != StateKind::Copied {
        kill_at_any_moment(COPIED).await;
    }
}

async fn kill_at_any_moment(kind: &str) {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let state = folder.path().join(kind);
    let (agent, id) = names();
    let mut told = ChildLog::default();
    let mut moments = Moments::new();
    let mut longest = 3 * first_change(&folder.path().join("try").join(kind));
    for round in 0..MOST_ROUNDS {
        if round >= ROUNDS && told.done > Some(CHANGES) {
            break;
        }
        let wait = longest * moments.next() / 1000;
        let before = told.done;
        kill_after(&state, wait, &mut told);
        if told.done == before && wait > longest / 2 {
            // It has become slower since it was measured.
            longest *= 2;
        }
        let Some(done) = told.done else { continue };

        let sandbox = sandbox(&state);
        let session = sandbox.open_session(&agent, &id).await.expect("session");
        let found = shell(&session, "cat value; ls d").await;
        let lines: Vec<&str> = found.lines().collect();
        assert!(
            lines.len() == 2 && lines[0] == lines[1],
            "round {round}: a mixture: {found:?}"
        );
        let value: u32 = lines[0].parse().expect("number");
        assert!(
            [Some(done), told.tried].contains(&Some(value)),
            "round {round}: {value}, told {done}"
        );
        for (name, saved) in &told.saved {
            let fork = session
                .fork(&name.parse().expect("name"), None)
                .await
                .expect("fork");
            let expected = format!("{saved}\n{saved}\n");
            assert_eq!(
                shell(&fork, "cat value; ls d").await,
                expected,
                "round {round}: {name}"
            );
            fork.destroy().await.expect("destroyed");
        }
        told.tried = None;
        told.done = Some(value);
        session.close().await.expect("closed");
    }
    assert!(told.done > Some(CHANGES), "the child came too short");
    sandbox(&state)
        .destroy_session(&agent, &id)
        .await
        .expect("destroyed");
    for place in ["sessions", "layers", "references", "staging", "trash"] {
        let left: Vec<_> = std::fs::read_dir(state.join(place))
            .expect("folder")
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| name != ".lock")
            .collect();
        assert!(left.is_empty(), "{place}: {left:?}");
    }
}
