//! What a guest does as the init process of a container, in addition to starting programs: it relays
//! connections, reports usage and starts of programs, and kills and reaps orphans. In a namespace of
//! our own, the owner and the kernel do all this.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use brig_linux::process;
use brig_wire::Container;
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::channel::Channel;
use crate::relay::{Relay, RelayEvent};
use crate::task::Task;
use crate::usage::Meter;
use crate::watch::ExecWatch;
use crate::{Failure, container_check, process_tree};

/// Between two rounds of killing orphans. A killed process may have forked just before.
const KILL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct ContainerInit {
    pub relay: Relay,
    pub meter: Meter,
    pub watch: Option<ExecWatch>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ContainerEvent {
    Relay(RelayEvent),
    Watch(usize),
}

impl ContainerInit {
    pub(crate) fn open(container: &Container, watches: bool) -> Result<Self, Failure> {
        let listeners = container_check::check(container)?;
        let watch = if watches {
            Some(ExecWatch::open(container)?)
        } else {
            None
        };
        Ok(Self {
            relay: Relay::new(&container.listeners, listeners),
            meter: Meter::new(container.own_kernel, container.own_group),
            watch,
        })
    }

    pub(crate) fn poll_fds(
        &self,
        channel: &Channel,
        takes_more: bool,
    ) -> Vec<(ContainerEvent, BorrowedFd<'_>, PollFlags)> {
        let watched = self.watch.iter().filter(|_| takes_more);
        let watched = watched.flat_map(ExecWatch::poll_fds).enumerate();
        let watched = watched.map(|(index, fd)| (ContainerEvent::Watch(index), fd, PollFlags::IN));
        let relayed = self.relay.poll_fds(channel, takes_more).into_iter();
        watched
            .chain(relayed.map(|(event, fd, flags)| (ContainerEvent::Relay(event), fd, flags)))
            .collect()
    }

    pub(crate) fn handle(&mut self, event: ContainerEvent, tasks: &[Task], channel: &mut Channel) {
        match event {
            ContainerEvent::Relay(event) => self.relay.handle(event, channel),
            ContainerEvent::Watch(index) => {
                if let Some(watch) = &mut self.watch {
                    watch.handle(index, tasks, channel);
                }
            }
        }
    }

    /// Reaps ended orphans, which the guest adopts where keepers can't be child subreapers.
    pub(crate) fn reap_orphans(&mut self, keepers: &[u32]) {
        let orphans = std::mem::take(&mut self.meter.orphans);
        for pid in orphans.into_iter().filter(|pid| !keepers.contains(pid)) {
            let _ = process::wait(Some(pid), false);
        }
    }

    /// How long to wait for events while these run.
    pub(crate) fn poll_timeout(&self, tasks: &[Task]) -> Duration {
        if tasks.iter().any(|task| task.orphans) {
            KILL_INTERVAL
        } else {
            self.meter.until_due()
        }
    }
}

/// Kills the processes of executions whose keeper is gone. One call is one round; the next ones kill
/// what was forked meanwhile.
pub(crate) fn kill_orphans(tasks: &mut [Task], spare: Option<u32>) {
    let kept = |task: &&Task| !task.orphans && !task.has_ended();
    let mut keepers: Vec<u32> = tasks.iter().filter(kept).map(|task| task.keeper).collect();
    let none_left = if keepers.is_empty() {
        // Also the spare keeper, which is replaced when it is needed.
        let _ = process::kill_all_others();
        reap_all(tasks)
    } else {
        keepers.extend(spare);
        let adopts = rustix::process::child_subreaper().is_ok();
        let strays = process_tree::below_none_of(&keepers);
        // Where keepers can't adopt, an orphan may belong to any execution. So all of them live until
        // the last execution has ended.
        let ours = if adopts { strays } else { Vec::new() };
        for pid in &ours {
            process_tree::kill(*pid);
        }
        for pid in &ours {
            let _ = process::wait(Some(*pid), false);
        }
        ours.is_empty()
    };
    if none_left {
        tasks.iter_mut().for_each(Task::orphans_reaped);
    }
}

/// Returns whether no child is left.
fn reap_all(tasks: &mut [Task]) -> bool {
    loop {
        match process::wait(None, false) {
            Ok(Some((pid, usage))) => {
                let own =
                    |task: &&mut Task| task.keeper == pid && !task.orphans && !task.has_ended();
                if let Some(task) = tasks.iter_mut().find(own) {
                    task.reaped_with(usage);
                }
            }
            Ok(None) => return false,
            Err(error) => return error.raw_os_error() == Some(Errno::CHILD.raw_os_error()),
        }
    }
}
