//! Every start of a program in a container is told. What is denied by its name is refused, but
//! nothing is held by that: denied files have stand-ins in their place.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use brig_caller::Caller;
use brig_linux::notify::{Answer, Call, Listener, Waiting};
use brig_wire::{Denied, Exec, FromGuest};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::channel::Channel;
use crate::task::Task;
use crate::{Failure, Step};

#[derive(Debug)]
pub struct Watch {
    denied: Option<Denied>,
    /// Where keepers hand out who is to be asked, and where that arrives.
    out: OwnedFd,
    arrives: OwnedFd,
    listeners: Vec<(u32, Listener)>,
}

impl Watch {
    pub fn open(denied: Option<Denied>) -> Result<Self, Failure> {
        let flags = SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (arrives, out) = pair.step("make a socket")?;
        Ok(Self {
            denied,
            out,
            arrives,
            listeners: Vec::new(),
        })
    }

    pub fn handoff(&self) -> &OwnedFd {
        &self.out
    }

    pub fn awaited(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listeners = self.listeners.iter().map(|(_, listener)| listener.as_fd());
        std::iter::once(self.arrives.as_fd()).chain(listeners)
    }

    /// The first of those that are awaited is where listeners arrive.
    pub fn ready(&mut self, index: usize, tasks: &[Task], channel: &mut Channel) {
        match index.checked_sub(1) {
            None => self.take(),
            Some(index) => {
                let served = self.listeners.get(index).map(|(id, listener)| {
                    let task = tasks.iter().find(|task| task.id == *id);
                    serve(*id, listener, task, self.denied.as_ref(), channel)
                });
                if matches!(served, Some(Err(_))) {
                    self.listeners.remove(index);
                }
            }
        }
    }

    /// What is gone is not waited for.
    pub fn forget(&mut self, id: u32) {
        self.listeners.retain(|(other, _)| *other != id);
    }

    fn take(&mut self) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut number = [0; 4];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::net::recvmsg(
            &self.arrives,
            &mut [IoSliceMut::new(&mut number)],
            &mut control,
            flags,
        );
        if received.is_err() {
            return;
        }
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        if let Some(descriptor) = descriptor {
            let listener = Listener::from(descriptor);
            listener.wake_in_place();
            self.listeners.push((u32::from_le_bytes(number), listener));
        }
    }
}

fn serve(
    id: u32,
    listener: &Listener,
    task: Option<&Task>,
    denied: Option<&Denied>,
    channel: &mut Channel,
) -> std::io::Result<()> {
    let Some(waiting) = listener.receive()? else {
        return Ok(());
    };
    let mut answer = Answer::Continue;
    if let Call::Exec { .. } = waiting.call {
        let mut exec = look(id, &waiting, task);
        if denied.is_some_and(|denied| is_denied(&exec, denied)) {
            exec.refused = true;
            answer = Answer::Errno(Errno::ACCESS.raw_os_error());
        }
        if listener.waits(waiting.id) {
            channel.send(&FromGuest::Exec(Box::new(exec)));
        }
    }
    // Fails only if whoever asked is gone.
    let _ = listener.answer(waiting.id, answer);
    Ok(())
}

/// By its name, wherever it is; but for stand-ins, which say themselves what was asked of them.
fn is_denied(exec: &Exec, denied: &Denied) -> bool {
    let path = exec.path.as_deref().unwrap_or_default();
    let in_folder = Path::new(path).starts_with(&denied.folder);
    if in_folder || denied.covered.iter().any(|covered| covered == path) {
        return false;
    }
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let names = [name(&exec.program), name(path)];
    denied.names.iter().any(|denied| names.contains(denied))
        || denied.covered.contains(&exec.program)
}

fn look(id: u32, waiting: &Waiting, task: Option<&Task>) -> Exec {
    let caller = Caller::new(waiting.thread);
    let (process, parent) = Caller::family(waiting.thread).unwrap_or((waiting.thread, 0));
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let mut exec = Exec {
        id,
        process,
        parent,
        running: caller.program().as_deref().map(text),
        ..Exec::default()
    };
    match caller.asked(&waiting.call) {
        Ok(asked) => {
            exec.path = asked.place.path().map(text);
            exec.program = asked.program;
            exec.words = asked.arguments;
        }
        // What is about to become the program can't be read, but what it becomes is known.
        Err(_) => {
            let words = task.filter(|task| task.keeper == parent);
            exec.words = words.map(|task| task.words.clone()).unwrap_or_default();
            exec.program = exec.words.first().cloned().unwrap_or_default();
            exec.running = None;
        }
    }
    // A message has room for no more.
    exec.words.truncate(64);
    for word in &mut exec.words {
        let end = (0..=word.len().min(1024))
            .rev()
            .find(|end| word.is_char_boundary(*end));
        word.truncate(end.unwrap_or(0));
    }
    exec
}
