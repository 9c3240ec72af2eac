//! The host: what it has, and what is left on it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A text that occurs nowhere else on the machine.
pub fn marker() -> String {
    format!("brig-attack-{}", uuid::Uuid::new_v4().simple())
}

/// A directory that everybody can enter and read, so that only the sandbox protects it.
pub fn scratch() -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .prefix("brig-attack-")
        .tempdir()
        .unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The same, and everybody may write to it.
pub fn open_scratch() -> tempfile::TempDir {
    let folder = scratch();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// The processes with this name.
pub fn processes_named(name: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.split(|byte| *byte == 0).next() == Some(name.as_bytes()))
        })
        .collect()
}

/// The gVisor kernels with this text in the memory of their programs.
pub fn kernels_with(text: &str) -> usize {
    let kernels = processes_named("runsc-sandbox").into_iter();
    kernels
        .filter(|pid| memory_has(*pid, text.as_bytes()))
        .count()
}

fn memory_has(pid: i32, text: &[u8]) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let memory = files.map(|entry| entry.path()).filter(|path| {
        fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("runsc-memory"))
    });
    memory
        .filter_map(|path| fs::File::open(path).ok())
        .any(|file| holds(&file, text))
}

/// Whether a file with holes has this text in it.
fn holds(file: &fs::File, text: &[u8]) -> bool {
    use rustix::fs::{SeekFrom, seek};
    use std::os::unix::fs::FileExt;
    let (mut at, mut buffer) = (0, vec![0; 1 << 20]);
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        let end = seek(file, SeekFrom::Hole(start)).unwrap_or(start);
        at = start;
        while at < end {
            let wanted = buffer
                .len()
                .min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let read = file.read_at(&mut buffer[..wanted], at).unwrap_or(0);
            if read == 0 {
                return false;
            }
            if buffer[..read]
                .windows(text.len())
                .any(|window| window == text)
            {
                return true;
            }
            // A text that crosses the boundary of two reads is found by the next one.
            at += if at + (read as u64) < end {
                (read - text.len()) as u64
            } else {
                read as u64
            };
        }
    }
    false
}

/// Kills a process that a positive control left behind on purpose.
pub fn end(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

pub fn digest(path: impl Into<PathBuf>) -> Vec<u8> {
    Sha256::digest(fs::read(path.into()).unwrap()).to_vec()
}

/// A number out of a `/proc/<pid>/status` file, such as `VmHWM`.
pub fn status_number(pid: u32, field: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Reports what could not be tested here, and why.
pub fn skip(what: &str) {
    let test = std::thread::current().name().unwrap_or("attack").to_owned();
    let line = format!("SKIP attacks {test}: {what}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("BRIG_TEST_SKIPS") {
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{line}")).unwrap();
    }
}
