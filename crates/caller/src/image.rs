//! Which program a process runs, distinguished from the one that it ran before.

use std::path::PathBuf;

use brig_linux::process_stat::{ProcessStat, read_proc, read_proc_text};

use crate::{Caller, FileId, PAGE};

/// The random addresses (ASLR) that the kernel chooses at every `execve`. Another program, or the
/// same one started again, has others; forked children share them. The kernel keeps its own copy of
/// the auxiliary vector, so a program can't change what is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    addresses: [u64; 6],
}

const RANDOM_BYTES: u64 = 25;
const STARTED_AS: u64 = 31;
/// `AT_PHDR`, `AT_BASE`, `AT_ENTRY`, `AT_RANDOM`, `AT_EXECFN` and `AT_SYSINFO_EHDR`.
const ADDRESSES: [u64; 6] = [3, 7, 9, RANDOM_BYTES, STARTED_AS, 33];

/// What a thread is doing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It waits in `execve`.
    InExec,
    /// It waits in another call.
    Elsewhere,
    /// It runs, or can't be inspected.
    Unknown,
}

/// Without ASLR, two programs could have the same addresses.
pub fn check_random_addresses() -> std::io::Result<()> {
    match std::fs::read_to_string("/proc/sys/kernel/randomize_va_space") {
        Ok(setting) if setting.trim() == "0" => Err(std::io::Error::other(
            "kernel.randomize_va_space is 0, so started programs can't be told apart; set it to 2",
        )),
        _ => Ok(()),
    }
}

impl Caller {
    /// `None` if the thread is gone or may not be inspected.
    pub fn image(self) -> Option<Image> {
        let table = self.auxiliary()?;
        // The kernel writes this entry last. Without it, the vector is not complete yet.
        value(&table, STARTED_AS)?;
        let addresses = ADDRESSES.map(|kind| value(&table, kind).unwrap_or(0));
        Some(Image { addresses })
    }

    /// The path that was passed to `execve`. It is in the program's memory, so it can't be trusted
    /// once the program has run code of its own.
    pub fn started_as(self) -> Option<String> {
        let path = self.started_by()?;
        Some(String::from_utf8_lossy(&path).into_owned())
    }

    pub(crate) fn started_by(self) -> Option<Vec<u8>> {
        let address = value(&self.auxiliary()?, STARTED_AS)?;
        self.text(address, PAGE).ok()
    }

    /// Whether it exists and has not ended.
    pub fn is_alive(self) -> bool {
        self.stat().is_some_and(|stat| !stat.has_ended())
    }

    pub fn exists(self) -> bool {
        std::fs::exists(self.proc("stat")).unwrap_or(true)
    }

    /// Together with the id, it identifies a process: the kernel reuses ids.
    pub fn start_time(self) -> Option<u64> {
        self.stat().map(|stat| stat.start_time)
    }

    pub(crate) fn stat(self) -> Option<ProcessStat> {
        ProcessStat::of(self.thread()).ok()
    }

    pub(crate) fn activity(self) -> Activity {
        let call = read_proc_text(self.proc("syscall")).unwrap_or_default();
        let number = call
            .split(' ')
            .next()
            .and_then(|word| word.trim().parse().ok());
        match number {
            Some(number) if brig_linux::notify::is_exec(number) => Activity::InExec,
            Some(_) => Activity::Elsewhere,
            None => Activity::Unknown,
        }
    }

    fn auxiliary(self) -> Option<Vec<u8>> {
        read_proc(self.proc("auxv")).ok()
    }
}

/// What a process runs, as the kernel reports it.
#[derive(Clone, Debug)]
pub struct RunningProgram {
    /// Of the process.
    pub start_time: Option<u64>,
    pub program: Option<PathBuf>,
    pub file: Option<FileId>,
    pub image: Option<Image>,
}

impl RunningProgram {
    pub fn of(caller: Caller) -> Self {
        Self {
            // First: if the rest is of another process, this is not.
            start_time: caller.start_time(),
            program: caller.program(),
            file: caller.program_file(),
            image: caller.image(),
        }
    }
}

fn value(table: &[u8], wanted: u64) -> Option<u64> {
    let (words, _) = table.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let mut pairs = pairs.iter().map(|pair| pair.map(u64::from_ne_bytes));
    pairs.find_map(|[kind, value]| (kind == wanted).then_some(value))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_program_keeps_its_image_and_another_has_its_own() {
        let own = Caller::new(std::process::id());
        let image = own.image().expect("an image");
        assert_eq!(own.image(), Some(image));
        let mut other = std::process::Command::new("/bin/cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a child");
        // `spawn` returns before the child has its new memory. Once it answers, it runs.
        let (stdin, stdout) = (other.stdin.as_mut(), other.stdout.as_mut());
        stdin.expect("a pipe").write_all(b"x").expect("written");
        stdout.expect("a pipe").read_exact(&mut [0]).expect("read");
        let child = Caller::new(other.id());
        assert!(child.image().is_some_and(|other| other != image));
        assert_eq!(child.started_as().as_deref(), Some("/bin/cat"));
        drop(other.stdin.take());
        other.wait().expect("its end");
        assert!(!child.exists() && child.image().is_none());
    }
}
