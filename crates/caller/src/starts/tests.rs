//! Which of several requests is the one that the kernel has started.

use std::process::{Child, Command, Stdio};

use super::*;

/// An id that no process has.
const GONE: u32 = 1 << 30;

struct TestProcess(Child);

impl TestProcess {
    /// Runs until it is dropped, with these arguments.
    fn sleep(seconds: &str) -> Self {
        let child = Command::new("sleep").arg(seconds).spawn();
        Self(child.expect("sleep")).wait_until_running()
    }

    /// `spawn` returns before the child has its new memory.
    fn wait_until_running(self) -> Self {
        let own = Caller::new(std::process::id()).image();
        while self.image().is_none() || self.image() == own {
            std::thread::sleep(FIRST_CHECK);
        }
        self
    }

    fn file(&self) -> Option<FileId> {
        Caller::new(self.0.id()).program_file()
    }

    fn image(&self) -> Option<Image> {
        Caller::new(self.0.id()).image()
    }

    /// A request of one of its threads, made before it ran this program.
    fn start(
        &self,
        arguments: &[&str],
        file: Option<FileId>,
        record: &'static str,
    ) -> PendingStart<&'static str> {
        let requested = RequestedProgram {
            program: "sleep".into(),
            resolved: ResolvedPath::File("/usr/bin/sleep".into()),
            file,
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        };
        let mut start = PendingStart::new(Caller::new(self.0.id()), requested, record);
        start.image = Caller::new(std::process::id()).image();
        start
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The record of the running program, and those of failed starts.
fn taken(
    running: &TestProcess,
    waiting: Vec<(u32, PendingStart<&'static str>)>,
) -> (Option<&'static str>, Vec<&'static str>) {
    let mut starts = PendingStarts::default();
    for (thread, start) in waiting {
        starts.insert(thread, start);
    }
    let (found, rest) = starts.take(running.0.id(), running.image(), running.file());
    let mut rest: Vec<_> = rest.into_iter().map(|start| start.record).collect();
    rest.sort_unstable();
    (found.map(|start| start.record), rest)
}

#[test]
fn of_two_threads_the_one_counts_whose_arguments_run() {
    let running = TestProcess::sleep("1000");
    let (own, file) = (running.0.id(), running.file());
    assert!(file.is_some());
    for (ours, theirs) in [(own, GONE), (GONE, own)] {
        let runs = running.start(&["sleep", "1000"], file, "runs");
        let lost = running.start(&["sleep", "2000"], file, "lost");
        let found = taken(&running, vec![(ours, runs), (theirs, lost)]);
        assert_eq!(found, (Some("runs"), vec!["lost"]), "{ours} {theirs}");
    }
}

#[test]
fn the_file_counts_before_the_order() {
    let running = TestProcess::sleep("1000");
    let (own, file) = (running.0.id(), running.file());
    let other = FileId::of("/");
    for (ours, theirs) in [(own, GONE), (GONE, own)] {
        // Neither has asked for these arguments: they were changed after they were read.
        let runs = running.start(&["sleep", "1"], file, "runs");
        let lost = running.start(&["sleep", "2"], other, "lost");
        let found = taken(&running, vec![(ours, runs), (theirs, lost)]);
        assert_eq!(found, (Some("runs"), vec!["lost"]), "{ours} {theirs}");
    }
}

#[test]
fn what_threads_ask_for_that_are_there_still_is_left_to_them() {
    let (running, other) = (TestProcess::sleep("1000"), TestProcess::sleep("2000"));
    let mut starts = PendingStarts::default();
    let file = running.file();
    starts.insert(
        running.0.id(),
        running.start(&["sleep", "1000"], file, "runs"),
    );
    starts.insert(other.0.id(), other.start(&["sleep", "1000"], file, "waits"));
    let (found, rest) = starts.take(running.0.id(), running.image(), file);
    assert_eq!(found.map(|start| start.record), Some("runs"));
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(starts.into_records().collect::<Vec<_>>(), ["waits"]);
}

#[test]
fn what_runs_on_has_started_nothing() {
    let running = TestProcess::sleep("1000");
    let (own, file) = (running.0.id(), running.file());
    let mut start = running.start(&["sleep", "1000"], file, "waits");
    start.image = running.image();
    let mut starts = PendingStarts::default();
    starts.insert(own, start);
    let (found, rest) = starts.take(own, running.image(), file);
    assert!(found.is_none() && rest.is_empty());
    assert!(starts.take_failed(own, running.image()).is_some());
    assert!(starts.take_failed(own, running.image()).is_none());
    // The control: what ran before was something else.
    starts.insert(own, running.start(&["sleep", "1000"], file, "runs"));
    let (found, _) = starts.take(own, running.image(), file);
    assert_eq!(found.map(|start| start.record), Some("runs"));
}

#[test]
fn what_has_ended_was_not_refused() {
    let mut child = Command::new("true").spawn().expect("a child");
    let thread = child.id();
    let caller = Caller::new(thread);
    while !caller.stat().expect("not reaped").has_ended() {
        std::thread::sleep(FIRST_CHECK);
    }
    let requested = RequestedProgram {
        program: "true".into(),
        resolved: ResolvedPath::Unknown,
        file: None,
        arguments: Vec::new(),
    };
    let start = PendingStart::new(caller, requested, ());
    let later = Instant::now() + 2 * TIMEOUT;
    assert!(matches!(
        start.check(thread, later),
        Some(StartResult::Gone)
    ));
    child.wait().expect("its end");
    assert!(matches!(
        start.check(thread, later),
        Some(StartResult::Gone)
    ));
}

/// `sleep` waits in a call, and runs what it ran.
#[test]
fn only_what_waits_elsewhere_was_refused() {
    let running = TestProcess::sleep("1000");
    let caller = Caller::new(running.0.id());
    while caller.activity() != Activity::Elsewhere {
        std::thread::sleep(FIRST_CHECK);
    }
    let mut start = running.start(&["sleep", "1000"], running.file(), "asked");
    start.image = running.image();
    let later = Instant::now() + 2 * TIMEOUT;
    let seen = start.check(running.0.id(), later);
    assert!(matches!(seen, Some(StartResult::Failed)), "{seen:?}");
    let early = start.requested_at;
    assert!(start.check(running.0.id(), early).is_none());
    // One that runs may be in any call, or in none.
    let spins = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn();
    let spins = TestProcess(spins.expect("a shell")).wait_until_running();
    let caller = Caller::new(spins.0.id());
    while caller.activity() != Activity::Unknown {
        std::thread::sleep(FIRST_CHECK);
    }
    let mut start = spins.start(&["sh"], spins.file(), "asked");
    start.image = spins.image();
    let seen = start.check(spins.0.id(), later);
    assert!(
        !matches!(seen, Some(StartResult::Gone | StartResult::Running(_))),
        "{seen:?}"
    );
}

/// The parent goes on when the child has its new memory, which is before it has its arguments.
#[test]
fn a_program_is_not_running_before_it_has_its_arguments() {
    let own = Caller::new(std::process::id()).image();
    let long = "x".repeat(130_000);
    for round in 0..100 {
        let mut command = Command::new("sh");
        command.args(["-c", "read line"]).args([&long; 15]);
        let child = command.stdin(Stdio::piped()).spawn();
        let child = TestProcess(child.expect("a shell"));
        let mut start = child.start(&["sh"], None, "asked");
        start.image = own;
        let caller = loop {
            if let Some(StartResult::Running(caller)) = start.check(child.0.id(), Instant::now()) {
                break caller;
            }
        };
        assert!(caller.all_arguments().is_some(), "{round}");
    }
}

#[test]
fn another_process_with_the_same_id_is_not_killed() {
    let mut child = TestProcess(Command::new("sleep").arg("60").spawn().expect("a child"));
    let caller = Caller::new(child.0.id());
    let start_time = caller.start_time().expect("it runs");
    for other in [None, Some(start_time + 1)] {
        caller.kill(other);
    }
    assert!(caller.is_alive());
    caller.kill(Some(start_time));
    assert!(!child.0.wait().expect("it ends").success(), "control");
}
