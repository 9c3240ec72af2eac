//! What the owner sends: control messages, and the bytes of channels.

use std::io;

use brig_wire::{Frame, FromGuest, Kind, ToGuest};

use super::Guest;
use crate::streams::Stdin;
use crate::task::Task;
use crate::{Failure, files};

impl Guest {
    pub(super) fn receive(&mut self, frame: Frame) -> io::Result<()> {
        match frame.kind {
            Kind::Control => {
                self.control(brig_wire::from_bytes(&frame.payload).map_err(io::Error::other)?);
            }
            Kind::Data => self.data(frame.channel, &frame.payload),
            Kind::End => self.end(frame.channel),
            Kind::Credit => {
                if let Some(amount) = frame.credit() {
                    self.channel.credited(frame.channel, amount);
                }
            }
        }
        Ok(())
    }

    fn control(&mut self, message: ToGuest) {
        match message {
            // Only the first message counts.
            ToGuest::Hello(_) => {}
            // Whatever is read shows that the owner is there.
            ToGuest::Heartbeat => {}
            ToGuest::Spawn(spawn) => {
                let (id, scratch) = (spawn.id, spawn.scratch.clone());
                self.transfers.begin_writing();
                match self.start(*spawn) {
                    Ok(task) => self.tasks.push(task),
                    Err(failure) => {
                        if let Some(scratch) = scratch {
                            files::remove_scratch(&scratch);
                        }
                        let errno = failure.errno();
                        let step = failure.step;
                        self.channel
                            .send(&FromGuest::SpawnFailed { id, step, errno });
                    }
                }
            }
            // Ids of executions, transfers and relayed connections are distinct.
            ToGuest::Kill { id } => {
                if let Some(container) = &mut self.container {
                    container.relay.drop_connection(id, &mut self.channel);
                }
                self.with_task(id, |task| task.kill());
                self.transfers.cancel(id, &mut self.channel);
            }
            ToGuest::Signal { id, signal } => self.with_task(id, |task| task.signal(signal)),
            ToGuest::Resize { id, rows, columns } => {
                self.with_task(id, |task| task.resize(rows, columns));
            }
            ToGuest::Put {
                id,
                base,
                path,
                mode,
                channel,
            } => self.transfers.put(id, channel, base, &path, mode),
            ToGuest::Fill { id, channel, tree } => self.transfers.fill(id, channel, tree),
            ToGuest::Save {
                id,
                channel,
                tree,
                fresh,
                writers,
            } => {
                let begun = self.transfers.save(id, channel, tree, (fresh, writers));
                self.report_failure(id, begun);
            }
            ToGuest::Find {
                id,
                names,
                directories,
            } => {
                let paths = names.iter().map(|name| files::find(name, &directories));
                let paths = paths.collect();
                self.channel.send(&FromGuest::Found { id, paths });
            }
            ToGuest::Datagram {
                listener,
                from,
                bytes,
            } => {
                if let Some(container) = &self.container {
                    container.relay.answer(listener, from, &bytes);
                }
            }
            ToGuest::Get { id, path, channel } => {
                let begun = self.transfers.get(id, channel, &path);
                self.report_failure(id, begun);
            }
            ToGuest::List { id, path } => match files::list(&self.hello.workspace, &path) {
                Ok(entries) => self.listing(id, entries),
                Err(failure) => self.channel.send_failure(id, failure),
            },
        }
    }

    /// Does nothing if the execution is over: the owner may not know that yet.
    fn with_task(&self, id: u32, act: impl FnOnce(&Task)) {
        if let Some(task) = self
            .tasks
            .iter()
            .find(|task| task.id == id && !task.has_ended())
        {
            act(task);
        }
    }

    fn report_failure(&mut self, id: u32, begun: Result<(), Failure>) {
        if let Err(failure) = begun {
            self.channel.send_failure(id, failure);
        }
    }

    /// In parts, because one control message is limited in size.
    fn listing(&mut self, id: u32, entries: Vec<brig_wire::FileInfo>) {
        let parts: Vec<_> = entries
            .chunks(brig_wire::LISTING_PART)
            .map(<[_]>::to_vec)
            .collect();
        let count = parts.len();
        for (index, entries) in parts.into_iter().enumerate() {
            let last = index + 1 == count;
            self.channel.send(&FromGuest::Listing { id, entries, last });
        }
        if count == 0 {
            self.channel.send(&FromGuest::Listing {
                id,
                entries: Vec::new(),
                last: true,
            });
        }
    }

    /// A channel belongs to an upload, a relayed connection or a program's stdin.
    fn data(&mut self, number: u32, bytes: &[u8]) {
        let channel = &mut self.channel;
        let relay = self.container.as_mut().map(|own| &mut own.relay);
        if self.transfers.data(number, bytes, channel)
            || relay.is_some_and(|relay| relay.data(number, bytes, channel))
        {
            return;
        }
        if let Some(stdin) = stdin_of(&mut self.tasks, number) {
            stdin.push(bytes, channel);
        }
    }

    fn end(&mut self, number: u32) {
        let channel = &mut self.channel;
        if self.transfers.end(number, channel) {
            return;
        }
        if let Some(stdin) = stdin_of(&mut self.tasks, number) {
            stdin.end(channel);
        } else if let Some(container) = &mut self.container {
            container.relay.end(number, channel);
        }
    }
}

fn stdin_of(tasks: &mut [Task], channel: u32) -> Option<&mut Stdin> {
    tasks
        .iter_mut()
        .filter_map(|task| task.stdin.as_mut())
        .find(|stdin| stdin.channel == channel)
}
