//! An engine that only this test uses: some of its runtimes are not what their names say, and it is killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Engine, with_option};
use brig_docker::{DockerBackend, Options};
use brig_linux::process_stat::ProcessStat;
use brig_sandbox::config::MIB;
use brig_sandbox::{
    AgentId, Backend, Error, ExecutionHandle, KillReason, Limit, Report, Request, Sandbox,
    SessionConfig,
};
use rustix::process::{Pid, Signal};

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scripts/lib/docker-engine"
);

/// The first has the name of gVisor, and is none. The second is not installed.
const RUNTIMES: &str = r#"
    "gvisor-by-name": { "path": "crun" },
    "runsc-gone": { "path": "/nonexistent/runsc" }"#;

/// Only what hangs takes so long: an idle machine takes a few seconds.
const HANGS: Duration = Duration::from_secs(300);

/// Stopped when this is dropped.
struct OwnEngine {
    engine: Engine,
    folder: tempfile::TempDir,
}

impl OwnEngine {
    /// `settings`: more variables for the script.
    fn start(test: &str, settings: &[(&str, &str)]) -> Option<Self> {
        Engine::with("crun", test)?;
        if !rustix::process::geteuid().is_root() {
            brig_testing::skip(test, "only root can start an engine");
            return None;
        }
        let folder = tempfile::tempdir().expect("folder");
        let output = Command::new(SCRIPT)
            .arg("start")
            .arg(folder.path())
            .env("BRIG_ENGINE_SMALL", "1")
            .env("BRIG_ENGINE_LOCAL", "1")
            .env("BRIG_ENGINE_RUNTIMES", RUNTIMES)
            .envs(settings.iter().copied())
            .stderr(Stdio::inherit())
            .output()
            .expect("the script");
        // Stops also what started only in part.
        let mut own = Self {
            engine: Engine {
                socket: folder.path().join("docker.sock"),
                image: String::new(),
            },
            folder,
        };
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        let mut lines = text.lines();
        let image = lines.find_map(|line| line.strip_prefix("BRIG_TEST_SMALL_IMAGE="));
        let Some(image) = image else {
            brig_testing::skip(test, "there is no static busybox for an image");
            return None;
        };
        own.engine.image = image.into();
        Some(own)
    }

    async fn backend(&self, max_silence: Duration) -> Arc<DockerBackend> {
        let options = Options {
            max_silence,
            image: Some(self.engine.image.clone()),
            ..self.engine.options()
        };
        Arc::new(DockerBackend::connect(options).await.expect("it connects"))
    }

    fn pid(&self) -> Option<i32> {
        let pid = std::fs::read_to_string(self.folder.path().join("docker.pid"));
        pid.ok()?.trim().parse().ok()
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(Pid::from_raw).expect("its pid");
        rustix::process::kill_process(pid, signal).expect("a process");
    }

    /// As if it had crashed: nothing ends what it started.
    fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Ends it and starts it anew. `between`: while there is none.
    async fn restart(&self, between: impl FnOnce()) {
        let before = self.pid().expect("its pid");
        let hold = self.folder.path().join("restart");
        let ended = self.folder.path().join("ended");
        std::fs::write(&hold, "").expect("a file");
        self.signal(Signal::TERM);
        // Not only the process: its parent must have seen that it is to be started anew.
        until("the engine ends", || ended.exists()).await;
        assert!(!is_running(before.cast_unsigned()), "it has ended");
        between();
        std::fs::remove_file(hold).expect("a file");
        until("another engine answers", || {
            self.engine.curl("GET", "/_ping").stdout == b"OK"
        })
        .await;
    }

    /// The process of this engine that is gVisor's kernel.
    fn gvisor(&self) -> Option<u32> {
        let own = self.folder.path().display().to_string();
        find_process(|words| {
            let words: Vec<_> = words.split(|byte| *byte == 0).collect();
            let text = words.join(&b' ');
            words.contains(&b"boot".as_slice()) && String::from_utf8_lossy(&text).contains(&own)
        })
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(30).collect();
            let lines = lines.into_iter().rev().collect::<Vec<_>>();
            eprintln!("the end of the engine's log:\n{}", lines.join("\n"));
        }
        let _ = Command::new(SCRIPT)
            .arg("stop")
            .arg(self.folder.path())
            .status();
    }
}

fn agent() -> AgentId {
    "agent".parse().expect("a name")
}

async fn run(sandbox: &Sandbox, config: SessionConfig, program: &[&str]) -> Result<Report, Error> {
    let request = Request::command(program.iter().copied());
    sandbox.run_once(&agent(), config, request).await
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < HANGS, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The process with exactly these arguments.
fn process_of(words: &[&str]) -> Option<u32> {
    let mut wanted = words.join("\0").into_bytes();
    wanted.push(0);
    find_process(|words| words == wanted)
}

fn find_process(is_wanted: impl Fn(&[u8]) -> bool) -> Option<u32> {
    let all = std::fs::read_dir("/proc").expect("/proc");
    let mut pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"))
            .is_ok_and(|words| is_wanted(&words))
    })
}

fn is_running(pid: u32) -> bool {
    ProcessStat::of(pid).is_ok_and(|stat| !stat.has_ended())
}

async fn runtimes_are_proved(own: &OwnEngine) {
    let engine = &own.engine;
    let backend = own.backend(Options::default().max_silence).await;
    let notes: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&notes);
    let sandbox = Sandbox::builder(backend.clone())
        .on_plan(move |plan| told.lock().expect("lock").extend(plan.notes().to_vec()))
        .build()
        .expect("sandbox");
    let program = ["/bin/busybox", "true"];
    for runtime in ["runc", "crun"] {
        let report = run(&sandbox, engine.config(runtime), &program).await;
        let report = report.expect("control: it runs");
        assert!(report.outcome.success(), "{report:?}");
        assert_eq!(report.runtime.as_deref(), Some(runtime));
        assert_eq!(report.to_json()["runtime"], runtime);
    }
    assert_eq!(*notes.lock().expect("lock"), [""; 0], "nothing was chosen");

    // One that was asked for by name is never replaced.
    let named = run(&sandbox, engine.config("gvisor-by-name"), &program).await;
    let error = named.expect_err("it has no kernel of its own");
    assert_eq!(error.code(), "engine.runtime-ignored", "{error}");
    let named = run(&sandbox, engine.config("runsc-gone"), &program).await;
    assert_eq!(named.expect_err("not installed").code(), "engine.failed");

    let config = with_option(engine.config("runc"), "runtime", "auto");
    let report = run(&sandbox, config, &program).await.expect("one works");
    assert_eq!(report.runtime.as_deref(), Some("runsc-groups"));
    let notes = notes.lock().expect("lock").join("\n");
    for part in [
        "runtime `runsc-groups` (auto): ",
        "`gvisor-by-name` does not work: ",
        "`runsc` can't enforce cpu",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    let findings = backend.findings(None).await;
    let found = findings.iter().find(|finding| finding.what == "runtimes");
    let found = found.expect("what it says of runtimes");
    assert!(!found.good, "{found:?}");
    assert!(found.detail.contains("default: runsc-groups"), "{found:?}");
    assert!(
        found.detail.contains("runsc-gone does not work"),
        "{found:?}"
    );
}

/// gVisor's own memory and threads do not count, and what exceeds a limit is reported as that.
async fn gvisor_in_control_groups_keeps_limits(own: &OwnEngine) {
    let sandbox = Sandbox::builder(own.backend(Options::default().max_silence).await).build();
    let sandbox = sandbox.expect("sandbox");
    // Where they are too many they stay, so that a slow machine starts enough of them beside each other.
    let sleepers = |count: u32, seconds: u32| {
        format!(
            "for i in $(busybox seq {count}); do busybox sleep {seconds} & done; wait; echo all"
        )
    };
    let limited = |processes: u32, megabytes: u64| {
        let mut config = own.engine.config("runsc-groups");
        config.limits.processes = Limit::asked(processes);
        config.limits.memory_bytes = Limit::asked(megabytes * MIB);
        config
    };
    // Long enough to be seen: memory is observed on gVisor, by samples, and one read may be over before.
    let hungry = "echo so far; busybox dd if=/dev/zero of=/dev/null bs=300M count=200; echo all";
    for (config, script, output, killed) in [
        (limited(50, 512), "echo all".to_owned(), "all\n", None),
        (limited(100, 512), sleepers(60, 5), "all\n", None),
        (limited(20, 512), sleepers(60, 50), "", Some("processes")),
        (
            limited(50, 128),
            hungry.to_owned(),
            "so far\n",
            Some("memory"),
        ),
    ] {
        let report = run(&sandbox, config, &["/bin/sh", "-c", &script]).await;
        let report = report.unwrap_or_else(|error| panic!("{script}: {error:?}"));
        let outcome = &report.outcome;
        let reason = outcome.killed.as_ref().map(KillReason::name);
        assert_eq!(reason, killed, "{script}: {outcome:?}");
        let text = String::from_utf8_lossy(&outcome.stdout.bytes);
        assert_eq!(text, output, "{script}: {outcome:?}");
    }
}

/// A program that runs for long, and its process.
async fn sleeper(
    own: &OwnEngine,
    backend: &Arc<DockerBackend>,
    timeout: Duration,
    seconds: &str,
) -> (ExecutionHandle, u32) {
    let sandbox = Sandbox::builder(backend.clone()).build().expect("sandbox");
    let mut config = own.engine.config("crun");
    config.limits.timeout = Limit::asked(timeout);
    let words = ["/bin/busybox", "sleep", seconds];
    let session = sandbox.create_session(&agent(), None, config).await;
    let session = session.expect("a session");
    let running = session.start(Request::command(words)).await;
    let running = running.expect("it starts");
    until("it runs", || process_of(&words).is_some()).await;
    (running, process_of(&words).expect("its process"))
}

/// The same on gVisor, and its kernel: no process of the sandbox can be seen.
async fn gvisor_sleeper(
    own: &OwnEngine,
    backend: &Arc<DockerBackend>,
    timeout: Duration,
) -> (ExecutionHandle, u32) {
    let sandbox = Sandbox::builder(backend.clone()).build().expect("sandbox");
    let mut config = own.engine.config("runsc-groups");
    config.limits.timeout = Limit::asked(timeout);
    let session = sandbox.create_session(&agent(), None, config).await;
    let session = session.expect("a session");
    let request = Request::command(["/bin/busybox", "sleep", "7654324"]);
    let running = session.start(request).await.expect("it starts");
    (running, own.gvisor().expect("the kernel of the sandbox"))
}

async fn time_ends_without_the_engine(own: &OwnEngine) {
    const LONG: Duration = Duration::from_secs(600);
    // One whose time ends, and one whose owner falls silent.
    let patient = own.backend(LONG).await;
    let strict = own.backend(Duration::from_secs(8)).await;
    let (silent, silenced) = sleeper(own, &strict, LONG, "7654321").await;
    let (timed, limited) = sleeper(own, &patient, Duration::from_secs(5), "7654322").await;
    own.kill();
    assert!(is_running(silenced), "control: nothing else ends it");
    until("the time ends", || !is_running(limited)).await;
    until("the silence ends it", || !is_running(silenced)).await;
    for running in [silent, timed] {
        let ended = tokio::time::timeout(HANGS, running.wait()).await;
        let ended = ended.expect("it is noticed");
        assert!(
            !ended.as_ref().is_ok_and(|report| report.outcome.success()),
            "{ended:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_checked_and_not_needed_to_end() {
    brig_testing::alone!();
    let Some(own) = OwnEngine::start("an engine of its own", &[]) else {
        return;
    };
    runtimes_are_proved(&own).await;
    gvisor_in_control_groups_keeps_limits(&own).await;
    time_ends_without_the_engine(&own).await;
}

/// Under live-restore an engine that is started anew leaves containers alone, also those whose streams it lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_ends_while_the_engine_is_started_anew() {
    brig_testing::alone!();
    let live_restore = [("BRIG_ENGINE_LIVE_RESTORE", "1")];
    let Some(own) = OwnEngine::start("live-restore", &live_restore) else {
        return;
    };
    // Longer than a busy machine takes to end the engine.
    const TIME: Duration = Duration::from_secs(40);
    let backend = own.backend(Duration::from_secs(600)).await;
    let (timed, limited) = sleeper(&own, &backend, TIME, "7654323").await;
    let (gvisor, sandbox) = gvisor_sleeper(&own, &backend, TIME).await;
    own.restart(|| {
        assert!(is_running(limited), "control: it goes on");
        assert!(is_running(sandbox), "control: gVisor goes on");
    })
    .await;
    until("the time ends", || !is_running(limited)).await;
    until("the time ends on gVisor", || !is_running(sandbox)).await;
    for running in [timed, gvisor] {
        let ended = tokio::time::timeout(HANGS, running.wait()).await;
        let ended = ended.expect("it is noticed");
        assert!(
            !ended.as_ref().is_ok_and(|report| report.outcome.success()),
            "{ended:?}"
        );
    }
}
