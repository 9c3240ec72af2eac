//! Files of the workspace. The service's own access to files is root's and follows links, so each file takes
//! two steps: between this machine and a directory of root, and as the sandbox's user between there and the
//! workspace.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use brig_sandbox::backend::{FileEntry, FileKind};
use brig_sandbox::{Error, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::helper::{self, BASE};
use crate::instance::Machine;
use crate::remote::Done;

fn problem(path: &str, problem: impl Into<String>) -> Error {
    Error::File {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

/// What the script said, if it refused.
fn checked(path: &str, done: Done) -> Result<Done> {
    match done.exit_code {
        0 => Ok(done),
        4 => Err(problem(
            path,
            done.stderr.trim().chars().take(200).collect::<String>(),
        )),
        _ => Err(problem(path, done.problem())),
    }
}

pub(crate) async fn put(
    machine: &Machine,
    path: &str,
    mode: u32,
    content: &mut (dyn AsyncRead + Send + Unpin),
) -> Result<u64> {
    let limit = machine.limits.disk_bytes.value;
    let mut bytes = Vec::new();
    let read = content.take(limit + 1).read_to_end(&mut bytes).await;
    read.map_err(|error| Error::io("the content of a file", error))?;
    let size = bytes.len() as u64;
    if size > limit {
        return Err(problem(path, "it is larger than the disk limit"));
    }
    let staged = uuid::Uuid::new_v4().to_string();
    let place = format!("{BASE}/{staged}");
    let bytes = bytes::Bytes::from(bytes);
    machine
        .do_running("write a file", || {
            machine.remote.write(&place, 0o644, bytes.clone())
        })
        .await?;
    let mode = format!("{:o}", mode & 0o777);
    let done = machine.helper(&["put", &staged, &mode, path]).await;
    machine.remote.remove(&place).await;
    checked(path, done?)?;
    Ok(size)
}

pub(crate) async fn get(
    machine: &Machine,
    path: &str,
    into: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<u64> {
    let staged = uuid::Uuid::new_v4().to_string();
    let place = format!("{BASE}/{staged}");
    let done = machine.helper(&["get", &staged, path]).await?;
    let content = match checked(path, done) {
        Ok(_) => {
            machine
                .do_running("read a file", || machine.remote.read(&place, usize::MAX))
                .await
        }
        Err(error) => Err(error),
    };
    machine.remote.remove(&place).await;
    let content = content?;
    let written = into.write_all(&content).await;
    written.map_err(|error| Error::io("the content of a file", error))?;
    Ok(content.len() as u64)
}

pub(crate) async fn list(machine: &Machine, path: &str) -> Result<Vec<FileEntry>> {
    let done = checked(path, machine.helper(&["list", path]).await?)?;
    entries(&done.stdout).ok_or_else(|| Error::Protocol("a list of files makes no sense".into()))
}

/// `kind/size/mode/name`, each with a NUL byte after it, all in base64.
fn entries(text: &str) -> Option<Vec<FileEntry>> {
    let bytes = BASE64_STANDARD.decode(text.trim()).ok()?;
    let lines = bytes
        .split(|byte| *byte == 0)
        .filter(|line| !line.is_empty());
    let mut all: Vec<FileEntry> = lines.map(entry).collect::<Option<_>>()?;
    all.sort_by(|a, b| a.raw.cmp(&b.raw));
    Some(all)
}

fn entry(line: &[u8]) -> Option<FileEntry> {
    let mut parts = line.splitn(4, |byte| *byte == b'/');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let kind = match text()? {
        "f" => FileKind::File,
        "d" => FileKind::Directory,
        "l" => FileKind::Link,
        _ => FileKind::Other,
    };
    let size: u64 = text()?.parse().ok()?;
    let mode = u32::from_str_radix(text()?, 8).ok()?;
    let raw = parts.next()?.to_vec();
    let size = if kind == FileKind::Directory { 0 } else { size };
    Some(FileEntry::new(raw, kind, size, mode))
}

/// What the files of the workspace take.
pub(crate) async fn used(machine: &Machine) -> Result<u64> {
    let done = machine.helper(&[helper::USED]).await?;
    let used = done.stdout.trim().parse();
    used.map_err(|_| Error::Protocol("the size of the workspace makes no sense".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_it_is() {
        let text =
            BASE64_STANDARD.encode(b"f/3/644/b/\xff\0d/4096/755/a\nc\0l/1/777/l\0p/0/600/pipe\0");
        // A name has no slash; what comes after the third one is the name, whatever it is.
        let all = entries(&text).expect("entries");
        let short: Vec<_> = (all.iter())
            .map(|one| (one.raw.as_slice(), one.kind, one.size, one.mode))
            .collect();
        assert_eq!(
            short,
            [
                (&b"a\nc"[..], FileKind::Directory, 0, 0o755),
                (&b"b/\xff"[..], FileKind::File, 3, 0o644),
                (&b"l"[..], FileKind::Link, 1, 0o777),
                (&b"pipe"[..], FileKind::Other, 0, 0o600),
            ]
        );
        assert_eq!(entries("").expect("nothing"), []);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            &b"f"[..],
            b"f/x/644/a",
            b"f/1/9/a",
            b"f/1/644",
            b"\xff/1/644/a",
        ] {
            assert!(entries(&BASE64_STANDARD.encode(bad)).is_none(), "{bad:?}");
        }
        assert!(entries("!").is_none());
    }
}
