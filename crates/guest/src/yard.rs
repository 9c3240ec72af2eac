//! What a guest does in a container beside starting programs: it relays its doors, tells what is
//! used, and ends what executions leave behind.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use brig_linux::process;
use brig_wire::Container;
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::channel::Channel;
use crate::relay::{self, Relay};
use crate::task::Task;
use crate::usage::Meter;
use crate::watch::Watch;
use crate::{Failure, container, trees};

/// Between two looks at processes that were told to end.
const SWEEP: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct Yard {
    pub relay: Relay,
    pub meter: Meter,
    pub watch: Option<Watch>,
}

#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    Relay(relay::Awaited),
    Watch(usize),
}

impl Yard {
    pub fn open(container: &Container, watches: bool) -> Result<Self, Failure> {
        let doors = container::check(container)?;
        let denied = container.denied.clone();
        let watch = if watches {
            Some(Watch::open(denied)?)
        } else {
            None
        };
        Ok(Self {
            relay: Relay::new(&container.doors, doors),
            meter: Meter::new(container.own_kernel),
            watch,
        })
    }

    pub fn awaited(
        &self,
        channel: &Channel,
        takes_more: bool,
    ) -> Vec<(Awaited, BorrowedFd<'_>, PollFlags)> {
        let watched = self.watch.iter().filter(|_| takes_more);
        let watched = watched.flat_map(Watch::awaited).enumerate();
        let watched = watched.map(|(index, fd)| (Awaited::Watch(index), fd, PollFlags::IN));
        let relayed = self.relay.awaited(channel, takes_more).into_iter();
        watched
            .chain(relayed.map(|(awaited, fd, flags)| (Awaited::Relay(awaited), fd, flags)))
            .collect()
    }

    pub fn ready(&mut self, awaited: Awaited, tasks: &[Task], channel: &mut Channel) {
        match awaited {
            Awaited::Relay(awaited) => self.relay.ready(awaited, channel),
            Awaited::Watch(index) => {
                if let Some(watch) = &mut self.watch {
                    watch.ready(index, tasks, channel);
                }
            }
        }
    }

    /// Reaps the orphans that came to the guest because keepers can't adopt them, and have ended.
    pub fn bury(&mut self, keepers: &[u32]) {
        let orphans = std::mem::take(&mut self.meter.orphans);
        for pid in orphans.into_iter().filter(|pid| !keepers.contains(pid)) {
            let _ = process::wait(Some(pid), false);
        }
    }

    /// How long to wait while these run.
    pub fn patience(&self, tasks: &[Task]) -> Duration {
        if tasks.iter().any(|task| task.orphans) {
            SWEEP
        } else {
            self.meter.patience()
        }
    }
}

/// Ends what the keepers that are gone have left, a step at a time: one call is one look.
pub fn sweep(tasks: &mut [Task], spare: Option<u32>) {
    let kept = |task: &&Task| !task.orphans && !task.ended();
    let mut keepers: Vec<u32> = tasks.iter().filter(kept).map(|task| task.keeper).collect();
    let clean = if keepers.is_empty() {
        // Also the spare one, which is made anew when it is needed.
        let _ = process::kill_all_others();
        reap(tasks)
    } else {
        keepers.extend(spare);
        let adopts = rustix::process::child_subreaper().is_ok();
        let strays = trees::strays(&keepers);
        // Where keepers can't adopt, they may be anyone's: they end with the last execution.
        let ours = if adopts { strays } else { Vec::new() };
        for pid in &ours {
            trees::kill(*pid);
        }
        for pid in &ours {
            let _ = process::wait(Some(*pid), false);
        }
        ours.is_empty()
    };
    if clean {
        tasks.iter_mut().for_each(Task::buried);
    }
}

/// Whether no child is left.
fn reap(tasks: &mut [Task]) -> bool {
    loop {
        match process::wait(None, false) {
            Ok(Some((pid, usage))) => {
                let own = |task: &&mut Task| task.keeper == pid && !task.orphans && !task.ended();
                if let Some(task) = tasks.iter_mut().find(own) {
                    task.reaped_with(usage);
                }
            }
            Ok(None) => return false,
            Err(error) => return error.raw_os_error() == Some(Errno::CHILD.raw_os_error()),
        }
    }
}
