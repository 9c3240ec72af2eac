//! A link on the host that leads to one place and then another, as fast as it can be replaced.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Whether the link keeps changing, and otherwise where it leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rest {
    No,
    First,
    Second,
}

#[derive(Debug)]
pub struct Swapper {
    asked: Option<Sender<Rest>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    pub fn start(link: &Path, places: [&Path; 2]) -> Self {
        let (asked, asks) = channel();
        let (does, done) = channel();
        let (link, places) = (link.to_owned(), places.map(Path::to_owned));
        let thread = std::thread::spawn(move || swap(&link, &places, &asks, &does));
        let swapper = Self {
            asked: Some(asked),
            done,
            thread: Some(thread),
        };
        swapper.rest(Rest::First);
        swapper
    }

    /// Returns when it is so.
    pub fn rest(&self, rest: Rest) {
        let asked = self.asked.as_ref().expect("until it is dropped");
        asked.send(rest).expect("the thread runs");
        self.done.recv().expect("the thread runs");
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.asked = None;
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("once").expect("no panic");
        }
    }
}

fn swap(link: &Path, places: &[PathBuf; 2], asks: &Receiver<Rest>, does: &Sender<()>) {
    let spare = link.with_extension("spare");
    let lead_to = |place: &Path| {
        let _ = fs::remove_file(&spare);
        symlink(place, &spare).expect("a link");
        fs::rename(&spare, link).expect("its name");
    };
    let mut rest = asks.recv();
    while let Ok(asked) = rest {
        match asked {
            Rest::First => lead_to(&places[0]),
            Rest::Second => lead_to(&places[1]),
            Rest::No => {}
        }
        // Whoever asked for an end no longer listens.
        let _ = does.send(());
        rest = match asked {
            Rest::No => swap_until_asked(&lead_to, places, asks),
            Rest::First | Rest::Second => asks.recv(),
        };
    }
}

fn swap_until_asked(
    lead_to: &impl Fn(&Path),
    places: &[PathBuf; 2],
    asks: &Receiver<Rest>,
) -> Result<Rest, std::sync::mpsc::RecvError> {
    for round in 0u64.. {
        lead_to(&places[(round % 2) as usize]);
        // A pause now and then, so that one place is also met for longer.
        if round % 7 == 0 {
            std::thread::sleep(Duration::from_millis(round % 5));
        }
        match asks.try_recv() {
            Ok(rest) => return Ok(rest),
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {}
        }
    }
    Err(std::sync::mpsc::RecvError)
}
