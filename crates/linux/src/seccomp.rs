//! Compiles seccomp rules to a BPF program.
//!
//! Not with `seccompiler`, which the tests compare with: it has no notifications, and emits a list of
//! comparisons, which makes every start slower.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// What happens to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Allow,
    Errno(u16),
    Kill,
    /// The call waits for an answer; see [`crate::notify`].
    Notify,
}

impl Action {
    fn code(self) -> u32 {
        match self {
            Action::Allow => libc::SECCOMP_RET_ALLOW,
            Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
            Action::Kill => libc::SECCOMP_RET_KILL_PROCESS,
            Action::Notify => libc::SECCOMP_RET_USER_NOTIF,
        }
    }
}

/// All 64 bits of an argument, masked, must equal this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    pub argument: u8,
    pub mask: u64,
    pub value: u64,
}

/// The first rule of a system call whose tests all match decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub call: u32,
    pub tests: Vec<Test>,
    pub action: Action,
}

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Arch::X86_64),
            "aarch64" => Some(Arch::Aarch64),
            _ => None,
        }
    }

    fn audit_code(self) -> u32 {
        match self {
            Arch::X86_64 => 0xc000_003e,
            Arch::Aarch64 => 0xc000_00b7,
        }
    }
}

/// Set in the call numbers of the x32 ABI.
const X32_BIT: u32 = 0x4000_0000;
/// Calls of the x32 ABI don't exist.
const UNKNOWN: Action = Action::Errno(libc::ENOSYS as u16);
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

fn instruction(code: u16, yes: usize, no: usize, k: u32) -> u64 {
    let jump = |distance: usize| {
        u64::from(u8::try_from(distance).expect("a rule's code is longer than a jump can be"))
    };
    u64::from(code) << 48 | jump(yes) << 40 | jump(no) << 32 | u64::from(k)
}

/// Compiles rules into a program. Calls of another architecture kill; calls that no rule names
/// get `default`.
///
/// The program is a binary search over the call numbers. The kernel runs a new filter once for every call
/// number, to cache those that are always allowed, so a linear list would slow down each start.
pub fn compile(arch: Arch, rules: &[Rule], default: Action) -> Vec<u64> {
    let mut out = vec![
        instruction(LOAD, 0, 0, ARCH),
        instruction(EQUAL, 1, 0, arch.audit_code()),
        instruction(RETURN, 0, 0, Action::Kill.code()),
        instruction(LOAD, 0, 0, NUMBER),
    ];
    out.extend(search(&segments(arch, rules, default)));
    out
}

/// From this call number on, until the next segment, this code decides.
type Segment = (u32, Vec<u64>);

fn segments(arch: Arch, rules: &[Rule], default: Action) -> Vec<Segment> {
    let mut calls: BTreeMap<u32, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        calls.entry(rule.call).or_default().push(rule);
    }
    let otherwise = vec![instruction(RETURN, 0, 0, default.code())];
    let mut segments: Vec<Segment> = vec![(0, otherwise.clone())];
    let mut add = |start: u32, code: Vec<u64>| match segments.last_mut() {
        Some((last, old)) if *last == start => *old = code,
        Some((_, old)) if *old == code => {}
        _ => segments.push((start, code)),
    };
    for (call, rules) in &calls {
        add(*call, decide(rules, default));
        add(*call + 1, otherwise.clone());
    }
    if arch == Arch::X86_64 {
        // A filter that allows by default must not allow the same calls under other numbers.
        add(
            X32_BIT,
            match default {
                Action::Allow => vec![instruction(RETURN, 0, 0, UNKNOWN.code())],
                _ => otherwise,
            },
        );
    }
    // Adjacent segments with equal code are merged, because every instruction costs time at each start.
    segments.dedup_by(|next, before| next.1 == before.1);
    segments
}

/// A search tree over the segments. Written from its end, because jumps only lead forwards: what several segments
/// have in common is there once, as long as a jump reaches it.
fn search(segments: &[Segment]) -> Vec<u64> {
    let mut tree = Tree::default();
    let entry = tree.add(segments);
    assert_eq!(entry + 1, tree.reversed.len(), "the entry is written last");
    tree.reversed.reverse();
    tree.reversed
}

/// A conditional jump skips at most this many instructions.
const FARTHEST: usize = 255;
/// Shared code that is farther away is written again. Leaves room for the rules between it and who jumps there.
const FARTHEST_SHARED: usize = 192;

/// Places are counted from the end of the program.
#[derive(Default)]
struct Tree<'a> {
    reversed: Vec<u64>,
    /// Where the code of a segment begins, the last time it was written.
    written: HashMap<&'a [u64], usize>,
}

impl<'a> Tree<'a> {
    /// Returns where the code for these segments begins.
    fn add(&mut self, segments: &'a [Segment]) -> usize {
        let [(_, only)] = segments else {
            let (low, high) = segments.split_at(segments.len() / 2);
            let above = self.add(high);
            let below = self.add(low);
            let above = self.near(above, 2);
            let below = self.near(below, 1);
            let (yes, no) = (self.distance(above), self.distance(below));
            return self.push(instruction(AT_LEAST, yes, no, high[0].0));
        };
        match self.written.get(&only[..]) {
            Some(place) if self.distance(*place) <= FARTHEST_SHARED => *place,
            _ => {
                for code in only.iter().rev() {
                    self.push(*code);
                }
                let place = self.reversed.len() - 1;
                self.written.insert(only, place);
                place
            }
        }
    }

    /// A place that a conditional jump reaches from here, with `room` for what is written in between.
    fn near(&mut self, place: usize, room: usize) -> usize {
        let distance = self.distance(place);
        if distance + room <= FARTHEST {
            return place;
        }
        let distance = u32::try_from(distance).expect("a program is shorter than a jump can be");
        self.push(instruction(JUMP, 0, 0, distance))
    }

    /// What the next instruction has to skip to get there.
    fn distance(&self, place: usize) -> usize {
        self.reversed.len() - place - 1
    }

    fn push(&mut self, code: u64) -> usize {
        self.reversed.push(code);
        self.reversed.len() - 1
    }
}

fn decide(rules: &[&Rule], default: Action) -> Vec<u64> {
    let mut out = Vec::new();
    for rule in rules {
        let checks: Vec<(u32, u32, u32)> = rule.tests.iter().flat_map(halves).collect();
        let length = |mask: u32| if mask == u32::MAX { 2 } else { 3 };
        for (index, (offset, mask, value)) in checks.iter().enumerate() {
            // To the instruction after this rule's return.
            let rest = &checks[index + 1..];
            let skip = rest.iter().map(|(_, mask, _)| length(*mask)).sum::<usize>() + 1;
            out.push(instruction(LOAD, 0, 0, *offset));
            if *mask != u32::MAX {
                out.push(instruction(AND, 0, 0, *mask));
            }
            out.push(instruction(EQUAL, 0, skip, *value));
        }
        out.push(instruction(RETURN, 0, 0, rule.action.code()));
        if checks.is_empty() {
            return out;
        }
    }
    out.push(instruction(RETURN, 0, 0, default.code()));
    out
}

/// BPF has 32-bit words, so a test becomes one for each half that matters.
fn halves(test: &Test) -> Vec<(u32, u32, u32)> {
    let offset = ARGUMENTS + 8 * u32::from(test.argument);
    let low = (offset, test.mask as u32, test.value as u32);
    let high = (
        offset + 4,
        (test.mask >> 32) as u32,
        (test.value >> 32) as u32,
    );
    [low, high]
        .into_iter()
        .filter(|(_, mask, _)| *mask != 0)
        .collect()
}

/// Whether the kernel supports filters: then it reads the program before it checks anything else.
pub fn available() -> bool {
    // SAFETY: a null program is never read from; the call fails either way.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            std::ptr::null::<libc::sock_fprog>(),
        )
    };
    result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// Installs a filter for this process and all its children, permanently. Needs no_new_privs.
pub fn install(program: &[u64]) -> io::Result<()> {
    set_filter(program, 0).map(drop)
}

/// The same with a filter that notifies. The holder of the returned listener answers. Once it is closed, the
/// calls fail.
pub fn install_listened(program: &[u64]) -> io::Result<OwnedFd> {
    // While a call is being answered, a signal must not interrupt it, because it would be repeated.
    let killable = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let fd = match set_filter(program, listener | killable) {
        // Before Linux 5.19.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => set_filter(program, listener),
        set => set,
    }?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: with this flag the call answers with a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_filter(program: &[u64], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|word| libc::sock_filter {
            code: (word >> 48) as u16,
            jt: (word >> 40) as u8,
            jf: (word >> 32) as u8,
            k: *word as u32,
        })
        .collect();
    let length =
        u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog {
        len: length,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program points to `length` instructions that outlive the call; the kernel checks
    // every one of them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[cfg(test)]
mod tests;
