//! `/proc/PID/stat`.
//!
//! Not with the `procfs` crate: it brings a parser for all of /proc into the guest, for six fields.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The fields of `/proc/PID/stat` that Brig uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// `R`, `S`, `Z`, … as in proc(5).
    pub state: u8,
    pub parent: u32,
    pub threads: u32,
    /// User and system time of the process, in clock ticks.
    pub cpu_ticks: u64,
    /// In clock ticks since boot. Together with the id, it identifies a process: the kernel reuses
    /// ids.
    pub start_time: u64,
    /// Address of the end of its environment. 0 while `execve` has not passed the arguments on yet, and
    /// if this process may not inspect it.
    pub env_end: u64,
}

impl ProcessStat {
    /// Of a process, or of a thread by its id.
    pub fn of(pid: u32) -> io::Result<Self> {
        // Not as text: the name of a program may be any bytes.
        let stat = read_proc(format!("/proc/{pid}/stat"))?;
        Self::parse(&stat).ok_or_else(|| io::Error::other("malformed /proc/PID/stat"))
    }

    /// The content of the file.
    pub fn parse(stat: &[u8]) -> Option<Self> {
        // The program chooses its name, which may contain parentheses and spaces.
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
        // The first of these is field 3 of proc(5).
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |at: usize| field(at)?.parse::<u64>().ok();
        Some(Self {
            state: *field(3)?.as_bytes().first()?,
            parent: field(4)?.parse().ok()?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            threads: field(20)?.parse().ok()?,
            start_time: number(22)?,
            // Not every kernel that calls itself Linux has it.
            env_end: number(51).unwrap_or(0),
        })
    }

    /// Whether the process has ended, and at most waits to be reaped.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// The content of a file in /proc. `fs::read` takes its size from the file, which is 0 there, and begins
/// with reads of 32 bytes: too slow for what is read at every start of a program.
pub fn read_proc(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    const MOST_FILES: usize = 4096;
    let mut content = Vec::with_capacity(MOST_FILES);
    let mut file = File::open(path)?;
    let mut part = [0; MOST_FILES];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(content),
            Ok(read) => content.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The same as text. Names of programs in it may be any bytes.
pub fn read_proc_text(path: impl AsRef<Path>) -> io::Result<String> {
    let content = read_proc(path)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// The ids of all processes that this /proc shows. Empty if it can't be read.
pub fn process_ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_forge_a_field() {
        let mut line = b"7 (a) R 1 ".to_vec();
        line.extend([0xff, b')']);
        line.extend(b" Z 12 7 7 0 -1 0 0 0 0 0 40 2 0 0 20 0 5 0 999 1\n");
        let stat = ProcessStat::parse(&line).expect("a process");
        let expected = ProcessStat {
            state: b'Z',
            parent: 12,
            threads: 5,
            cpu_ticks: 42,
            start_time: 999,
            env_end: 0,
        };
        assert_eq!(stat, expected);
        assert!(stat.has_ended());
    }

    #[test]
    fn what_is_cut_off_is_not_a_process() {
        let line = b"7 (sh) S 1 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 999";
        assert!(ProcessStat::parse(line).is_some(), "control");
        let last = line.len() - b"999".len();
        for length in 0..last {
            assert_eq!(ProcessStat::parse(&line[..length]), None, "{length}");
        }
    }

    #[test]
    fn this_process_runs_and_is_listed() {
        let own = std::process::id();
        let stat = ProcessStat::of(own).expect("own stat");
        assert!(!stat.has_ended() && stat.threads > 0 && stat.start_time > 0);
        assert!(stat.env_end > 0);
        assert!(process_ids().any(|pid| pid == own));
    }
}
