//! One execution: its files are brought in, it is started once and detached, and its end is waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use brig_sandbox::backend::{ExecSignal, Permit};
use brig_sandbox::config::OutputOverflow;
use brig_sandbox::request::{Stdin, Work};
use brig_sandbox::{Error, Event, Execution, KillReason, Outcome, Output, Result};
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::Failure;
use crate::console::Console;
use crate::end::End;
use crate::helper::{self, BASE};
use crate::instance::Machine;

/// The script ends an execution this long after its deadline, if its owner is gone.
const OWNERLESS: Duration = Duration::from_secs(30);
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_secs(1);
const PIECE: usize = 256 * 1024;

pub(crate) async fn execute(
    machine: &Arc<Machine>,
    permit: Permit,
    mut execution: Execution,
) -> Result<Outcome> {
    if execution.terminal.is_some() {
        return Err(Error::InvalidConfig {
            what: "terminal",
            problem: "the Azure backend has none; leave out -t".into(),
        });
    }
    let id = uuid::Uuid::new_v4().to_string();
    let run = Run {
        machine,
        directory: format!("{BASE}/{id}"),
        id,
    };
    machine.decisions.begin(permit.attempts()).await;
    run.bring_in(&mut execution).await?;
    let begun = Instant::now();
    let started = run.start(&mut execution).await;
    if let Err(error) = started {
        run.clean_up();
        return Err(error);
    }
    let feeder = execution.stdin.take().map(|stdin| run.feed(stdin));
    let ended = run.until_end(&mut execution).await;
    if let Some(feeder) = feeder {
        feeder.abort();
    }
    let ended = match ended {
        Ok(ended) => Ok(ended),
        Err(error) => Err(run.stop(error).await),
    };
    let outcome = async {
        let (end, console) = ended?;
        run.outcome(end, console, &mut execution, begun).await
    };
    let decisions = machine.decisions.record(&machine.remote, permit.attempts());
    let (outcome, recorded) = tokio::join!(outcome, decisions);
    run.clean_up();
    recorded?;
    outcome
}

struct Run<'a> {
    machine: &'a Arc<Machine>,
    id: String,
    directory: String,
}

impl Run<'_> {
    /// Nobody waits for it.
    fn clean_up(&self) {
        let (machine, directory) = (self.machine.clone(), self.directory.clone());
        tokio::spawn(async move { machine.remote.remove(&directory).await });
    }

    async fn bring_in(&self, execution: &mut Execution) -> Result<()> {
        let remote = &self.machine.remote;
        if let (Work::Code { source, .. }, Some(name)) =
            (&execution.work, helper::source_name(execution))
        {
            let path = format!("{}/{name}", self.directory);
            let source = Bytes::from(source.clone());
            let write = || remote.write(&path, 0o644, source.clone());
            self.machine.do_running("bring the code in", write).await?;
        }
        let program = Bytes::from(helper::program(execution, &self.id));
        let path = format!("{}/program", self.directory);
        let write = || remote.write(&path, 0o644, program.clone());
        self.machine.do_running("bring the program in", write).await
    }

    /// Sent once. If the answer is lost, the execution goes on if it has begun; otherwise the sandbox is
    /// deleted, so that it can't begin any more.
    async fn start(&self, execution: &mut Execution) -> Result<()> {
        let limits = &self.machine.limits;
        let disk = limits.disk_bytes.value;
        let seconds = (execution.timeout + OWNERLESS).as_secs();
        let numbers = [
            u64::from(limits.processes.value),
            disk,
            disk / 1024,
            seconds,
        ];
        let numbers = numbers.map(|number| number.to_string());
        let [processes, file, kib, seconds] = numbers.each_ref().map(String::as_str);
        let input = if execution.stdin.is_some() { "1" } else { "0" };
        let command = helper::command(&["start", &self.id, processes, file, kib, seconds, input]);
        let started = self
            .machine
            .do_running("start the program", || async {
                match self.machine.remote.execute(command.clone()).await {
                    Err(failure) if failure.is_uncertain() => Ok(Err(failure)),
                    Err(failure) => Err(failure),
                    Ok(done) => Ok(Ok(done)),
                }
            })
            .await?;
        match started {
            Ok(done) if done.exit_code == 0 => Ok(()),
            Ok(done) => Err(Error::Setup {
                step: "start the program".into(),
                problem: done.problem(),
            }),
            Err(failure) => self.has_begun(&failure).await,
        }
    }

    async fn has_begun(&self, failure: &Failure) -> Result<()> {
        let timing = &self.machine.remote.client.timing;
        let until = Instant::now() + timing.lookup;
        let begun = format!("{}/begun", self.directory);
        loop {
            if self.machine.remote.read(&begun, 64).await.is_ok() {
                return Ok(());
            }
            if Instant::now() >= until {
                let cause = self.machine.remote.client.unavailable(failure).reason;
                let lost = Error::InstanceLost(format!(
                    "whether the program was started is not known ({cause}), so the sandbox was deleted"
                ));
                return Err(self.machine.delete_because(lost).await);
            }
            tokio::time::sleep(timing.poll).await;
        }
    }

    /// Passes standard input on, a piece at a time. A piece counts when its mark is there.
    fn feed(&self, mut stdin: Stdin) -> JoinHandle<()> {
        let machine = self.machine.clone();
        let directory = format!("{}/in", self.directory);
        tokio::spawn(async move {
            let mut piece = vec![0; PIECE];
            for number in 0_u64.. {
                let count = stdin.read(&mut piece).await.unwrap_or(0);
                let (data, mark) = match count {
                    0 => (None, "end".to_owned()),
                    _ => (Some(&piece[..count]), format!("{number}.ok")),
                };
                let write = async {
                    if let Some(data) = data {
                        let path = format!("{directory}/{number}");
                        let data = Bytes::copy_from_slice(data);
                        machine.remote.write(&path, 0o600, data).await?;
                    }
                    let path = format!("{directory}/{mark}");
                    machine.remote.write(&path, 0o600, "").await
                };
                // A program that gets no more input reads its end, or is ended by its deadline.
                if write.await.is_err() || count == 0 {
                    return;
                }
            }
        })
    }

    async fn until_end(&self, execution: &mut Execution) -> Result<(End, Console)> {
        let kills = self.machine.limits.output_overflow == OutputOverflow::Kill && !execution.uncut;
        let mut console = Console::new(execution, kills);
        console.send(Event::Started, &mut execution.signals).await;
        let mut wait = FIRST_LOOK;
        let end = loop {
            if let Some(end) = self.end().await? {
                break end;
            }
            if console.streamed {
                self.pass_on(&mut console, &mut execution.signals).await?;
            }
            let signal = match console.pending.take() {
                Some(reason) => Some(ExecSignal::Kill(reason)),
                None => tokio::select! {
                    Some(signal) = execution.signals.recv() => Some(signal),
                    () = tokio::time::sleep(wait) => None,
                },
            };
            match signal {
                Some(ExecSignal::Kill(reason)) => {
                    console.killed = console.killed.or(Some(reason));
                    let done = self.machine.helper(&["kill", &self.id]).await?;
                    if let Some(end) = End::parse(&done.stdout) {
                        break end;
                    }
                    wait = FIRST_LOOK;
                }
                Some(ExecSignal::Posix(number)) => {
                    let number = number.to_string();
                    self.machine.helper(&["signal", &self.id, &number]).await?;
                }
                Some(ExecSignal::Resize(_)) | None => wait = (wait * 3 / 2).min(LAST_LOOK),
            }
        };
        Ok((end, console))
    }

    /// Its end can't be waited for. So it is ended, or the sandbox is deleted with it.
    async fn stop(&self, error: Error) -> Error {
        if self.machine.remote.is_gone() {
            return error;
        }
        match self.machine.helper(&["kill", &self.id]).await {
            Ok(done) if End::parse(&done.stdout).is_some() => error,
            _ => self.machine.delete_because(error).await,
        }
    }

    /// How it ended, if it did.
    async fn end(&self) -> Result<Option<End>> {
        let path = format!("{}/exit", self.directory);
        let remote = &self.machine.remote;
        let read = || async {
            match remote.read(&path, 4096).await {
                Err(failure) if failure.is_missing() && !remote.is_gone() => Ok(None),
                read => read.map(Some),
            }
        };
        let text = self.machine.do_running("look for the end", read).await?;
        let Some(text) = text else {
            return Ok(None);
        };
        let end = End::parse(&String::from_utf8_lossy(&text));
        end.map(Some)
            .ok_or_else(|| Error::Protocol("there is no valid exit code".into()))
    }

    /// Output that came since the last look.
    async fn pass_on(
        &self,
        console: &mut Console,
        signals: &mut mpsc::UnboundedReceiver<ExecSignal>,
    ) -> Result<bool> {
        let from = [console.stdout.total, console.stderr.total].map(|total| total.to_string());
        let done = self
            .machine
            .helper(&["output", &self.id, &from[0], &from[1]])
            .await?;
        let mut any = false;
        for (line, stderr) in done.stdout.split('\n').zip([false, true]) {
            let bytes = BASE64_STANDARD.decode(line.trim());
            let bytes = bytes.map_err(|_| Error::Protocol("output makes no sense".into()))?;
            any |= !bytes.is_empty();
            console.take(bytes.into(), stderr, signals).await;
        }
        Ok(any)
    }

    async fn outcome(
        &self,
        end: End,
        mut console: Console,
        execution: &mut Execution,
        begun: Instant,
    ) -> Result<Outcome> {
        if let Some(error) = end.cannot_run(&execution.work) {
            return Err(error);
        }
        let mut whole = console.streamed;
        // Who waits for the end of a killed execution does not wait for all it has written.
        let mut left = if console.killed.is_some() {
            1
        } else {
            u32::MAX
        };
        while whole && (console.stdout.total < end.stdout || console.stderr.total < end.stderr) {
            whole = console.is_read() && left > 0;
            left = left.saturating_sub(1);
            if whole && !self.pass_on(&mut console, &mut execution.signals).await? {
                return Err(Error::Protocol(
                    "output was promised and did not come".into(),
                ));
            }
            // What came before the end counts as well.
            if let Some(reason) = console.pending.take() {
                console.killed = console.killed.or(Some(reason));
            }
        }
        if !whole {
            let most = usize::try_from(execution.output_bytes).unwrap_or(usize::MAX);
            let fetch = |name: &str, total: u64| {
                let path = format!("{}/{name}", self.directory);
                async move {
                    let read = || self.machine.remote.read(&path, most);
                    let bytes = match total {
                        0 => Vec::new(),
                        _ => self.machine.do_running("read the output", read).await?,
                    };
                    Ok::<_, Error>(Output { bytes, total })
                }
            };
            (console.stdout, console.stderr) =
                tokio::try_join!(fetch("out", end.stdout), fetch("err", end.stderr))?;
        }
        if end.why == "disk" {
            let limit_bytes = self.machine.limits.disk_bytes.value;
            console.killed = console.killed.or(Some(KillReason::Disk { limit_bytes }));
        }
        // As on every backend, also if it ended before the kill came.
        let overflowed = matches!(console.killed, Some(KillReason::Output { .. }));
        let code = if overflowed { 128 + 9 } else { end.code };
        let mut outcome = Outcome::exited(code);
        // The shell reports a signal as 128 and its number, as a program might do itself.
        outcome.signal = (code > 128 && code <= 128 + 64).then(|| code - 128);
        outcome.stdout = console.stdout;
        outcome.stderr = console.stderr;
        outcome.killed = console.killed;
        outcome.usage.cpu = end.cpu;
        outcome.duration = begun.elapsed();
        Ok(outcome)
    }
}
