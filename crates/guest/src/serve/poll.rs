//! What the main loop waits for, and for how long.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::{BACKLOG, Guest, SPARE_DELAY};
use crate::connectors::Connectors;
use crate::container_init::ContainerEvent;
use crate::task::Task;

/// What became ready. Numbers are indexes of tasks and of their streams.
pub(super) enum Ready {
    Channel,
    /// The channel can be written. Every round ends with a flush, so nothing else is to be done.
    Flush,
    Container(ContainerEvent),
    KeeperExit(usize),
    KeeperReport(usize),
    Exiting,
    Connectors,
    Output(usize, usize),
    Input(usize),
}

impl Guest {
    pub(super) fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut what = vec![Ready::Channel];
        let input = PollFd::from_borrowed_fd(self.channel.input(), PollFlags::IN);
        let mut fds = vec![input];
        if self.channel.has_outgoing() {
            what.push(Ready::Flush);
            let output = self.channel.output();
            fds.push(PollFd::from_borrowed_fd(output, PollFlags::OUT));
        }
        let takes_more = self.channel.backlog() < BACKLOG;
        // Files are always readable: while one can be sent, the loop must not block.
        let mut at_once = takes_more && self.transfers.could_send(&self.channel);
        for (index, task) in self.tasks.iter().enumerate() {
            if !task.has_ended() {
                if let Some(pidfd) = &task.pidfd {
                    what.push(Ready::KeeperExit(index));
                    fds.push(PollFd::new(pidfd, PollFlags::IN));
                }
                if !task.status_read {
                    what.push(Ready::KeeperReport(index));
                    fds.push(PollFd::new(&task.status.pipe, PollFlags::IN));
                }
            }
            for (number, stream) in task.streams.iter().enumerate() {
                if let Some(source) = &stream.source
                    && stream.can_read(&self.channel)
                    && takes_more
                {
                    what.push(Ready::Output(index, number));
                    fds.push(PollFd::new(source, PollFlags::IN));
                    at_once |= task.has_ended();
                }
            }
            if let Some(stdin) = &task.stdin
                && let Some(sink) = &stdin.sink
                && stdin.can_write()
            {
                what.push(Ready::Input(index));
                fds.push(PollFd::new(sink, PollFlags::OUT));
            }
        }
        if let Some(container) = &self.container {
            for (event, fd, flags) in container.poll_fds(&self.channel, takes_more) {
                what.push(Ready::Container(event));
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        for fd in self.connectors.iter().flat_map(Connectors::poll_fds) {
            what.push(Ready::Connectors);
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        for (_, pidfd) in &self.exiting {
            what.push(Ready::Exiting);
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
        let timeout = if at_once {
            Some(Duration::ZERO)
        } else {
            self.timeout()
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let flags = PollFlags::IN | PollFlags::OUT | PollFlags::HUP | PollFlags::ERR;
        let ready: Vec<bool> = fds
            .iter()
            .map(|fd| fd.revents().intersects(flags))
            .collect();
        Ok(what
            .into_iter()
            .zip(ready)
            // The output of an ended task is read until the pipe is empty, ready or not: a process
            // that outlives the execution may still have the other end open.
            .filter(|(what, ready)| {
                *ready || matches!(what, Ready::Output(task, _) if self.tasks[*task].has_ended())
            })
            .map(|(what, _)| what)
            .collect())
    }

    /// How long to wait if no descriptor becomes ready.
    fn timeout(&self) -> Option<Duration> {
        let work = if self.should_prepare_spare() {
            Some(SPARE_DELAY)
        } else if self.tasks.is_empty() {
            None
        } else {
            let container = self.container.as_ref();
            container.map(|container| container.poll_timeout(&self.tasks))
        };
        let ends = self.tasks.iter().filter_map(Task::time_left);
        ends.chain(work).chain(self.until_silent()).min()
    }
}
