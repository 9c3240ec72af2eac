//! Seccomp filters: rules in, a program for the kernel out.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// What happens to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Allow,
    Errno(u16),
    Kill,
    /// The call waits for what is decided outside; see [`crate::notify`].
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

/// All 64 bits of an argument, masked, must have this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    pub argument: u8,
    pub mask: u64,
    pub value: u64,
}

/// The first rule of a system call whose tests all hold decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub call: u32,
    pub tests: Vec<Test>,
    pub action: Action,
}

/// A machine as seccomp sees it.
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

/// From here on numbers belong to the x32 ABI.
const X32_BIT: u32 = 0x4000_0000;
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
/// The program is a search tree over the call numbers. The kernel runs a new filter once for every
/// call there is, to see which are always allowed: a list would make each start slow.
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
        add(X32_BIT, otherwise);
    }
    segments
}

fn search(segments: &[Segment]) -> Vec<u64> {
    let [(_, only)] = segments else {
        let (low, high) = segments.split_at(segments.len() / 2);
        let (below, above) = (search(low), search(high));
        // Conditional jumps are short: a far half is reached by a plain one.
        let mut out = match u8::try_from(below.len()) {
            Ok(_) => vec![instruction(AT_LEAST, below.len(), 0, high[0].0)],
            Err(_) => vec![
                instruction(AT_LEAST, 0, 1, high[0].0),
                instruction(JUMP, 0, 0, below.len() as u32),
            ],
        };
        out.extend(below);
        out.extend(above);
        return out;
    };
    only.clone()
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

/// The filter machine has 32-bit words: a test becomes one for each half that matters.
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

/// Whether this process could put itself under a filter: the kernel then looks for the program
/// before anything else.
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

/// Puts this process and all its children under a filter for good. Needs no_new_privs.
pub fn install(program: &[u64]) -> io::Result<()> {
    set_filter(program, 0).map(drop)
}

/// The same with a filter that notifies: whoever holds the descriptor decides. When nobody does
/// any more, the calls fail.
pub fn install_listened(program: &[u64]) -> io::Result<OwnedFd> {
    // While somebody decides, a signal must not interrupt the call and make it ask again.
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
