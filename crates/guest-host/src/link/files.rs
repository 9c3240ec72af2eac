//! Files, through the guest.

use brig_sandbox::backend::{FileEntry, FileKind};
use brig_sandbox::{Error, Result};
use brig_wire::{Base, FromGuest, ToGuest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::connection::Connection;
use super::inbox::Incoming;

/// The most names that one listing may bring back.
const MAX_ENTRIES: usize = 100_000;

pub(super) async fn put(
    connection: &Connection,
    base: Base,
    path: &str,
    mode: u32,
    content: &mut (dyn AsyncRead + Send + Unpin),
) -> Result<u64> {
    let (id, channel) = (connection.number(), connection.number());
    let (mut inbox, mut route) = connection.open(id, &[], &[channel])?;
    connection.send(&ToGuest::Put {
        id,
        base,
        path: path.into(),
        mode,
        channel,
    })?;
    let mut buffer = vec![0; brig_wire::MAX_DATA];
    loop {
        match content.read(&mut buffer).await {
            Ok(0) => break,
            Ok(count) => connection.send_data(channel, &buffer[..count]).await?,
            Err(error) => return Err(Error::io(format!("read the content for {path}"), error)),
        }
    }
    connection.send_end(channel)?;
    let answer = inbox.recv().await;
    route.answered();
    match answer {
        Some(Incoming::Message(FromGuest::Done { bytes, .. })) => Ok(bytes),
        other => Err(failed(connection, path, other)),
    }
}

pub(super) async fn get(
    connection: &Connection,
    path: &str,
    into: &mut (dyn AsyncWrite + Send + Unpin),
    most: u64,
) -> Result<u64> {
    let (id, channel) = (connection.number(), connection.number());
    let (mut inbox, mut route) = connection.open(id, &[channel], &[])?;
    connection.send(&ToGuest::Get {
        id,
        path: path.into(),
        channel,
    })?;
    let mut received = 0;
    loop {
        match inbox.recv().await {
            Some(Incoming::Data { bytes, .. }) => {
                received += bytes.len() as u64;
                if received > most {
                    return Err(Error::File {
                        path: path.into(),
                        problem: format!("it is larger than the {most} bytes that fit on the disk"),
                    });
                }
                into.write_all(&bytes)
                    .await
                    .map_err(|error| Error::io(format!("write the content of {path}"), error))?;
                connection.grant(channel, bytes.len())?;
            }
            Some(Incoming::End) => {}
            Some(Incoming::Message(FromGuest::Done { bytes, .. })) if bytes == received => {
                route.answered();
                into.flush()
                    .await
                    .map_err(|error| Error::io(format!("write the content of {path}"), error))?;
                return Ok(received);
            }
            other => return Err(failed(connection, path, other)),
        }
    }
}

pub(super) async fn list(connection: &Connection, path: &str) -> Result<Vec<FileEntry>> {
    let id = connection.number();
    let (mut inbox, mut route) = connection.open(id, &[], &[])?;
    connection.send(&ToGuest::List {
        id,
        path: path.into(),
    })?;
    let mut found = Vec::new();
    loop {
        match inbox.recv().await {
            Some(Incoming::Message(FromGuest::Listing { entries, last, .. }))
                if last || !entries.is_empty() =>
            {
                found.extend(entries.into_iter().map(entry));
                if found.len() > MAX_ENTRIES {
                    return Err(Error::File {
                        path: path.into(),
                        problem: format!("it has more than {MAX_ENTRIES} entries"),
                    });
                }
                if last {
                    route.answered();
                    return Ok(found);
                }
            }
            other => return Err(failed(connection, path, other)),
        }
    }
}

pub(super) async fn find(
    connection: &Connection,
    names: &[&str],
    path: &str,
) -> Result<Vec<Option<String>>> {
    let id = connection.number();
    let (mut inbox, mut route) = connection.open(id, &[], &[])?;
    let directories = path.split(':').filter(|folder| !folder.is_empty());
    connection.send(&ToGuest::Find {
        id,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        directories: directories.map(str::to_owned).collect(),
    })?;
    let answer = inbox.recv().await;
    route.answered();
    match answer {
        Some(Incoming::Message(FromGuest::Found { paths, .. })) if paths.len() == names.len() => {
            Ok(paths)
        }
        other => Err(failed(connection, "programs", other)),
    }
}

fn entry(entry: brig_wire::FileInfo) -> FileEntry {
    let kind = match entry.kind {
        brig_wire::FileKind::File => FileKind::File,
        brig_wire::FileKind::Directory => FileKind::Directory,
        brig_wire::FileKind::Link => FileKind::Link,
        brig_wire::FileKind::Other => FileKind::Other,
    };
    FileEntry::new(entry.name, kind, entry.size, entry.mode)
}

fn failed(connection: &Connection, path: &str, answer: Option<Incoming>) -> Error {
    let path = path.to_owned();
    match answer {
        Some(Incoming::Message(FromGuest::Failed { step, errno, .. })) => {
            let problem = match rustix::io::Errno::from_raw_os_error(errno) {
                rustix::io::Errno::LOOP => {
                    format!("{step}: the path contains a symbolic link, and links are not followed")
                }
                rustix::io::Errno::XDEV => format!("{step}: it is outside the workspace"),
                errno => format!("{step}: {errno}"),
            };
            Error::File { path, problem }
        }
        None => connection.lost(),
        Some(other) => Error::Protocol(format!("unexpected answer: {}", other.name())),
    }
}
