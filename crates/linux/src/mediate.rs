//! System calls that another process makes for programs, or counts. Numbers in a notification are
//! final. Memory behind a pointer can change, so it is read once.

use crate::notify::Notification;
use crate::seccomp::{self, Action, Arch, Rule, Test};

/// Which calls a filter notifies about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediatedCalls {
    /// Locks and watches on files that are shared with the host.
    pub files: bool,
    /// `connect`, `sync` and `syncfs`.
    pub connects: bool,
    /// Every call with a socket address.
    pub addresses: bool,
}

/// A mediated call, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Pointers are into the memory of the caller.
    Connect {
        descriptor: i32,
        address: u64,
        length: u32,
    },
    /// `sendto` with an address.
    SendTo {
        descriptor: i32,
        data: (u64, u64),
        address: u64,
        length: u32,
    },
    /// `sendmsg`, or `sendmmsg` with `count` messages.
    SendMessages {
        descriptor: i32,
        messages: u64,
        count: Option<u32>,
    },
    Netlink {
        kind: i32,
        protocol: i32,
    },
    /// The caller installs a seccomp filter of its own.
    Filter,
    /// `flock`.
    Lock {
        descriptor: i32,
        operation: i32,
    },
    /// `inotify_add_watch`.
    Watch {
        descriptor: i32,
        path: u64,
        mask: u32,
    },
    /// `sync` or `syncfs`.
    Sync,
    /// `fsync` or `fdatasync`.
    SyncFile {
        descriptor: i32,
    },
    Other,
}

/// The descriptor that a keeper hands its listener out over. That `sendmsg` must not notify, because
/// nobody has the listener yet. Programs have no descriptor with this number: it is their limit.
pub const HANDOFF: u32 = 4095;

const SET_MODE_FILTER: u64 = libc::SECCOMP_SET_MODE_FILTER as u64;

/// Rules that notify.
pub fn rules(mediated: MediatedCalls) -> Vec<Rule> {
    let rule = |call: libc::c_long, tests: Vec<Test>| Rule {
        call: call as u32,
        tests,
        action: Action::Notify,
    };
    let first = |value: u64| Test {
        argument: 0,
        mask: u64::from(u32::MAX),
        value,
    };
    let mut rules = vec![
        rule(libc::SYS_socket, vec![first(libc::AF_NETLINK as u64)]),
        rule(libc::SYS_seccomp, vec![first(SET_MODE_FILTER)]),
        rule(libc::SYS_prctl, vec![first(libc::PR_SET_SECCOMP as u64)]),
    ];
    let mut calls = Vec::new();
    if mediated.files {
        calls.extend([libc::SYS_flock, libc::SYS_inotify_add_watch]);
    }
    if mediated.connects {
        calls.extend([libc::SYS_connect, libc::SYS_sync, libc::SYS_syncfs]);
        calls.extend([libc::SYS_fsync, libc::SYS_fdatasync]);
    }
    if mediated.addresses {
        // Without an address, the destination is the one of an earlier `connect`.
        let no_address = Test {
            argument: 4,
            mask: u64::MAX,
            value: 0,
        };
        let allowed = |call, test| Rule {
            action: Action::Allow,
            ..rule(call, vec![test])
        };
        rules.push(allowed(libc::SYS_sendto, no_address));
        rules.push(allowed(libc::SYS_sendmsg, first(HANDOFF.into())));
        calls.extend([libc::SYS_connect, libc::SYS_sendto]);
        calls.extend([libc::SYS_sendmsg, libc::SYS_sendmmsg]);
    }
    rules.extend(calls.into_iter().map(|call| rule(call, Vec::new())));
    rules
}

/// A filter that notifies about these calls and allows all others.
pub fn filter(mediated: MediatedCalls) -> Vec<u64> {
    let arch = Arch::from_name(std::env::consts::ARCH);
    arch.map_or_else(Vec::new, |arch| {
        seccomp::compile(arch, &rules(mediated), Action::Allow)
    })
}

impl Request {
    pub fn of(notification: &Notification) -> Self {
        let args = &notification.args;
        match libc::c_long::from(notification.number) {
            libc::SYS_connect => Request::Connect {
                descriptor: args[0] as i32,
                address: args[1],
                length: args[2] as u32,
            },
            libc::SYS_sendto => Request::SendTo {
                descriptor: args[0] as i32,
                data: (args[1], args[2]),
                address: args[4],
                length: args[5] as u32,
            },
            libc::SYS_sendmsg => Request::SendMessages {
                descriptor: args[0] as i32,
                messages: args[1],
                count: None,
            },
            libc::SYS_sendmmsg => Request::SendMessages {
                descriptor: args[0] as i32,
                messages: args[1],
                count: Some(args[2] as u32),
            },
            libc::SYS_socket => Request::Netlink {
                kind: args[1] as i32,
                protocol: args[2] as i32,
            },
            libc::SYS_seccomp | libc::SYS_prctl => Request::Filter,
            libc::SYS_flock => Request::Lock {
                descriptor: args[0] as i32,
                operation: args[1] as i32,
            },
            libc::SYS_inotify_add_watch => Request::Watch {
                descriptor: args[0] as i32,
                path: args[1],
                mask: args[2] as u32,
            },
            libc::SYS_sync | libc::SYS_syncfs => Request::Sync,
            libc::SYS_fsync | libc::SYS_fdatasync => Request::SyncFile {
                descriptor: args[0] as i32,
            },
            _ => Request::Other,
        }
    }
}

/// Size of a notification that the owner of a listener relays to the process that answers.
pub const RELAYED: usize = 64;

/// `thread` is the id of the caller in the PID namespace of the receiver.
pub fn to_relay(notification: &Notification, thread: u32) -> [u8; RELAYED] {
    let mut words = [0; RELAYED / 8];
    words[0] = notification.id;
    words[1] = u64::from(thread) | u64::from(notification.number.cast_unsigned()) << 32;
    words[2..].copy_from_slice(&notification.args);
    let mut message = [0; RELAYED];
    let (parts, _) = message.as_chunks_mut();
    for (part, word) in parts.iter_mut().zip(words) {
        *part = word.to_ne_bytes();
    }
    message
}

pub fn from_relay(message: &[u8; RELAYED]) -> Notification {
    let (parts, _) = message.as_chunks();
    let word = |index: usize| u64::from_ne_bytes(parts[index]);
    Notification {
        id: word(0),
        thread: word(1) as u32,
        call: crate::notify::Call::Other,
        number: (word(1) >> 32) as i32,
        args: std::array::from_fn(|at| word(at + 2)),
    }
}
