//! Calls that wait for an answer, and what becomes of them when nobody is left to give one. Without
//! the usual harness: a process with other threads must not be forked.

#![allow(clippy::unwrap_used)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use brig_linux::clone::{self, Fork};
use brig_linux::notify::{Answer, Call, Listener, exec_filter, read_memory};
use brig_linux::{process, seccomp};

/// Name and function of each test, listed and chosen as by the usual harness.
const TESTS: [(&str, fn()); 2] = [
    (
        "an_answer_lets_a_program_start",
        an_answer_lets_a_program_start,
    ),
    (
        "without_anyone_to_ask_nothing_starts",
        without_anyone_to_ask_nothing_starts,
    ),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |word: &str| arguments.iter().any(|argument| argument == word);
    if given("--list") {
        // None is ignored.
        let listed = TESTS.iter().filter(|_| !given("--ignored"));
        listed.for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let chosen = TESTS
        .iter()
        .filter(|(name, _)| !given("--exact") || given(name));
    let run = chosen.map(|(_, test)| test()).count();
    println!("test result: ok. {run} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

fn an_answer_lets_a_program_start() {
    let (child, listener) = start();
    assert_eq!(answered(&listener, child), 0);
}

/// The child tells by its exit code why it could not become another program.
fn without_anyone_to_ask_nothing_starts() {
    let (child, listener) = start();
    drop(listener);
    assert_eq!(ended(child), rustix::io::Errno::NOSYS.raw_os_error());
}

/// A child under the filter that becomes `/bin/true`, and the end that decides about it.
fn start() -> (u32, Listener) {
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    match clone::fork(0).unwrap() {
        Fork::Child => {
            let error = become_true(theirs, ours).unwrap_err();
            process::exit_now(error.raw_os_error().unwrap_or(99));
        }
        Fork::Parent { pid, .. } => {
            drop(theirs);
            (pid, receive(&ours).into())
        }
    }
}

fn become_true(socket: OwnedFd, other: OwnedFd) -> io::Result<()> {
    drop(other);
    rustix::thread::set_no_new_privs(true)?;
    let listener = seccomp::install_listened(&exec_filter(false, &[]))?;
    let descriptors = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    control.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors));
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&socket, &[io::IoSlice::new(b"l")], &mut control, flags)?;
    drop(listener);
    let program = c"/bin/true".to_owned();
    Err(process::exec(&program, std::slice::from_ref(&program), &[]))
}

fn receive(socket: &OwnedFd) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
    let flags = rustix::net::RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(
        socket,
        &mut [io::IoSliceMut::new(&mut [0])],
        &mut control,
        flags,
    )
    .unwrap();
    let found = control.drain().find_map(|message| match message {
        rustix::net::RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    found.unwrap()
}

fn answered(listener: &Listener, child: u32) -> i32 {
    let waiting = listener.receive().unwrap().unwrap();
    assert_eq!(waiting.thread, child);
    let Call::Exec {
        path, directory, ..
    } = waiting.call
    else {
        panic!("{waiting:?}");
    };
    let mut text = [0; 10];
    assert_eq!(read_memory(child, path, &mut text).unwrap(), text.len());
    assert_eq!((&text, directory), (b"/bin/true\0", None));
    assert!(listener.is_pending(waiting.id));
    listener.answer(waiting.id, Answer::Continue).unwrap();
    // The program that was started says so, before any code of its own.
    let waiting = listener.receive().unwrap().unwrap();
    assert_eq!((waiting.thread, waiting.call), (child, Call::Started));
    listener.answer(waiting.id, Answer::Continue).unwrap();
    ended(child)
}

fn ended(child: u32) -> i32 {
    let (_, usage) = process::wait(Some(child), true).unwrap().unwrap();
    assert_eq!(usage.status & 0x7f, 0, "ended by a signal");
    usage.status >> 8
}
