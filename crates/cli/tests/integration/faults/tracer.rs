//! Runs a program under `ptrace` and lets one of its system calls fail, or kills it there.
//!
//! Only the threads of the program itself are traced: what it starts is not, so a sandbox works as always. A
//! filter of seccomp could not do this, because a process may have only one with a listener and what is in the
//! sandbox would inherit it; `LD_PRELOAD` does not see calls that are made without the C library.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Output};
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::calls::{self, Call};
use super::kinds::Fault;

/// Longer than anything takes; what hangs is a finding.
const HANGS: Duration = Duration::from_secs(120);

pub(super) struct Traced {
    pub output: Output,
    /// All calls, in order.
    pub calls: Vec<Call>,
    /// The first one that failed.
    pub hit: Option<Call>,
}

/// Runs it to its end. Counts the calls on what lies below a directory.
pub(super) fn run(program: &Command, below: &Path, fault: Option<Fault>) -> Traced {
    let mut files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
    let mut command = Command::new("/bin/sh");
    // Stops until it is traced.
    command
        .args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(program.get_current_dir().unwrap())
        .stdin(std::process::Stdio::null())
        .stdout(files[0].try_clone().unwrap())
        .stderr(files[1].try_clone().unwrap())
        .process_group(0);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    #[expect(clippy::zombie_processes, reason = "`follow` waits for it")]
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();

    let (done, watched) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let hangs = watched.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout);
        if hangs {
            // Not waited for yet, so the number is still its own.
            let _ = kill(pid, Signal::SIGKILL);
        }
        hangs
    });
    let mut tracer = Tracer {
        pid,
        below,
        fault,
        concerned: 0,
        started: false,
        threads: HashMap::new(),
        calls: Vec::new(),
        hit: None,
    };
    let status = tracer.follow();
    drop(done);
    assert!(
        !watch.join().unwrap(),
        "it hung: {program:?} with {fault:?} at {:?}",
        tracer.hit.map(|call| call.path)
    );
    let [stdout, stderr] = files.each_mut().map(read);
    Traced {
        output: Output {
            status,
            stdout,
            stderr,
        },
        calls: tracer.calls,
        hit: tracer.hit,
    }
}

fn read(file: &mut File) -> Vec<u8> {
    use std::io::{Read, Seek};
    let mut text = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut text).unwrap();
    text
}

/// Where a thread is.
#[derive(Clone, Copy)]
enum At {
    Program,
    /// In a call; with what it will return in place of its result.
    Call(Option<Errno>),
}

struct Tracer<'a> {
    pid: Pid,
    below: &'a Path,
    fault: Option<Fault>,
    /// The calls so far that it concerns.
    concerned: usize,
    /// The program was executed.
    started: bool,
    threads: HashMap<Pid, At>,
    calls: Vec<Call>,
    hit: Option<Call>,
}

impl Tracer<'_> {
    fn follow(&mut self) -> ExitStatus {
        // The threads, by their process group: another test may have children of its own.
        let group = Pid::from_raw(-self.pid.as_raw());
        loop {
            match waitpid(group, Some(WaitPidFlag::__WALL)).unwrap() {
                WaitStatus::Exited(thread, code) => {
                    if thread == self.pid {
                        return ExitStatus::from_raw(code << 8);
                    }
                    self.threads.remove(&thread);
                }
                WaitStatus::Signaled(thread, signal, _) => {
                    if thread == self.pid {
                        return ExitStatus::from_raw(signal as i32);
                    }
                    self.threads.remove(&thread);
                }
                WaitStatus::PtraceSyscall(thread) => self.call(thread),
                WaitStatus::PtraceEvent(thread, _, event) => {
                    if event == nix::libc::PTRACE_EVENT_EXEC {
                        self.started = true;
                        // The end of `execve` itself is still to come.
                        self.threads.insert(thread, At::Call(None));
                    }
                    self.go_on(thread, None);
                }
                WaitStatus::Stopped(thread, signal) => self.go_on(thread, Some(signal)),
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    fn go_on(&self, thread: Pid, signal: Option<Signal>) {
        let going = if self.is_ours(thread) {
            ptrace::syscall(thread, signal)
        } else {
            ptrace::detach(thread, signal)
        };
        // It may have been killed meanwhile.
        assert!(matches!(going, Ok(()) | Err(Errno::ESRCH)), "{going:?}");
    }

    /// A thread of the program, not a process that shares its memory for a moment.
    fn is_ours(&self, thread: Pid) -> bool {
        thread == self.pid || Path::new(&format!("/proc/{}/task/{thread}", self.pid)).exists()
    }

    fn call(&mut self, thread: Pid) {
        let at = self.threads.get(&thread).copied().unwrap_or(At::Program);
        let next = match at {
            At::Program => At::Call(self.enter(thread)),
            At::Call(None) => At::Program,
            At::Call(Some(errno)) => {
                if let Ok(mut registers) = ptrace::getregs(thread) {
                    registers.rax = (-i64::from(errno as i32)).cast_unsigned();
                    let _ = ptrace::setregs(thread, registers);
                }
                At::Program
            }
        };
        self.threads.insert(thread, next);
        self.go_on(thread, None);
    }

    /// The error that this call gets.
    fn enter(&mut self, thread: Pid) -> Option<Errno> {
        if !self.started {
            return None;
        }
        let mut registers = ptrace::getregs(thread).ok()?;
        let call = calls::decode(thread, &registers, self.below)?;
        self.calls.push(call.clone());
        let fault = self.fault.filter(|fault| fault.kind.concerns(&call))?;
        let number = self.concerned;
        self.concerned += 1;
        if !fault.is_at(number) {
            return None;
        }
        self.hit.get_or_insert(call);
        let Some(errno) = fault.kind.errno() else {
            let _ = kill(self.pid, Signal::SIGKILL);
            return None;
        };
        // A number that no call has, so that nothing happens.
        registers.orig_rax = u64::MAX;
        ptrace::setregs(thread, registers).ok()?;
        Some(errno)
    }
}
