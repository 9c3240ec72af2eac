//! Asks on the terminal that Brig runs on, never on standard input, which may be the program's.
//!
//! While a question is open, the output of the program waits, so that it can't be taken for a part of the
//! question; what was typed before is dropped, so that it can't be taken for an answer.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Blocking, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use brig_sandbox::approvals::{ApprovalAnswer, ApprovalRequest, Approver};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use tokio::sync::Mutex;

use super::text;

/// Held by who writes to the terminal.
pub(crate) static SCREEN: Mutex<()> = Mutex::const_new(());

/// Lines that are shown with the question.
const LINES: usize = 40;
/// How long to wait before looking whether the question still matters.
const STEP: Duration = Duration::from_millis(100);

/// The terminal, for one question at a time.
#[derive(Debug)]
pub(crate) struct Terminal {
    by: String,
    turn: Mutex<()>,
    reading: Arc<Blocking<()>>,
}

impl Terminal {
    pub(crate) fn new(by: String) -> Self {
        Self {
            by,
            turn: Mutex::new(()),
            reading: Arc::default(),
        }
    }
}

/// Whether there is a terminal, somebody sees what is asked, and Brig may read from it.
pub(crate) fn is_usable() -> bool {
    io::stderr().is_terminal()
        && open()
            .is_ok_and(|tty| tcgetpgrp(&tty).is_ok_and(|group| group == rustix::process::getpgrp()))
}

fn open() -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/tty", flags, Mode::empty())?.into())
}

/// Tells the thread that reads that nobody waits any more.
struct AbandonOnDrop(Arc<AtomicBool>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Approver for Terminal {
    async fn ask(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let _turn = self.turn.lock().await;
        let _screen = SCREEN.lock().await;
        let abandon = AbandonOnDrop(Arc::new(AtomicBool::new(false)));
        let (request, seen, reading) = (request.clone(), abandon.0.clone(), self.reading.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let _one = reading.lock().unwrap_or_else(PoisonError::into_inner);
            question(&request, &seen)
        });
        match asked.await {
            Ok(Ok(true)) => ApprovalAnswer::approve(&*self.by),
            Ok(Ok(false)) => ApprovalAnswer::deny(&*self.by),
            Ok(Err(error)) => {
                let problem = format!("the terminal cannot be used: {error}");
                ApprovalAnswer::deny("brig").because(problem)
            }
            Err(_) => ApprovalAnswer::deny("brig").because("the question was interrupted"),
        }
    }
}

fn question(request: &ApprovalRequest, abandon: &AtomicBool) -> io::Result<bool> {
    let mut tty = open()?;
    let (shown, more) = text::beginning(request, LINES);
    let what = text::what(request);
    write!(tty, "\r\nbrig: {what} needs an approval\r\n")?;
    tty.write_all(lines(&shown).as_bytes())?;
    let choices = if more { "[y/N/s = show all]" } else { "[y/N]" };
    loop {
        tcflush(&tty, QueueSelector::IFlush)?;
        write!(tty, "Approve this once? {choices} ")?;
        let Some(answer) = line(&tty, abandon)? else {
            tty.write_all(b"\r\nbrig: the question is closed; not approved\r\n")?;
            return Ok(false);
        };
        match answer.trim() {
            "y" | "Y" | "yes" => return Ok(true),
            "s" | "S" if more => tty.write_all(lines(&text::whole(request)).as_bytes())?,
            _ => return Ok(false),
        }
    }
}

fn lines(text: &str) -> String {
    text.replace('\n', "\r\n")
}

/// One line. `None` if nobody waits for it any more, or the terminal is abandon.
fn line(tty: &File, abandon: &AtomicBool) -> io::Result<Option<String>> {
    let step = Timespec::try_from(STEP).map_err(io::Error::other)?;
    let mut all = Vec::new();
    loop {
        if abandon.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match poll(&mut [PollFd::new(tty, PollFlags::IN)], Some(&step)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; 256];
        let count = rustix::io::read(tty, &mut buffer)?;
        if count == 0 {
            return Ok(None);
        }
        all.extend_from_slice(&buffer[..count]);
        if all.contains(&b'\n') || all.len() > 4096 {
            return Ok(Some(String::from_utf8_lossy(&all).into_owned()));
        }
    }
}
