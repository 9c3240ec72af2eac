//! `brig session cp`: one file in or out. Directories: `copy_tree`.

use std::fs::Permissions;
use std::io::{ErrorKind, IsTerminal};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use brig_reason::ReasonCode;
use brig_sandbox::Session;
use brig_sandbox::backend::FileKind;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::copy_tree;
use crate::args::{CopyArgs, SessionName};
use crate::failure::Failure;
use crate::stdout::{OutputFormat, TerminalEscaper};
use crate::{assemble, json};

/// One end of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Endpoint {
    /// Standard input or output: `-`.
    Stream,
    Local(PathBuf),
    Inside(SessionName, String),
}

impl Endpoint {
    /// The text before the first `:` is a session if it is a valid name.
    fn parse(text: &str) -> Self {
        if text == "-" {
            return Self::Stream;
        }
        match text.split_once(':') {
            Some((name, path)) => match name.parse() {
                Ok(name) => Self::Inside(name, path.to_owned()),
                Err(_) => Self::Local(text.into()),
            },
            None => Self::Local(text.into()),
        }
    }
}

pub(crate) async fn run(args: &CopyArgs) -> Result<u8, Failure> {
    let (name, direction) = match (Endpoint::parse(&args.source), Endpoint::parse(&args.target)) {
        (Endpoint::Inside(..), Endpoint::Inside(..)) => {
            return Err(Failure::usage("cannot copy from one session to another")
                .with_hint("copy out to `-` and in from `-`, through a pipe"));
        }
        (Endpoint::Inside(name, from), to) => (name, Direction::Out { from, to }),
        (from, Endpoint::Inside(name, to)) => (name, Direction::In { from, to }),
        _ => {
            return Err(Failure::usage("neither path is in a session")
                .with_hint("write the path in the session as SESSION:PATH"));
        }
    };
    if args.json
        && matches!(
            direction,
            Direction::Out {
                to: Endpoint::Stream,
                ..
            }
        )
    {
        return Err(Failure::usage(
            "--json and the file cannot both go to stdout",
        ));
    }
    let session = assemble::open_session(&name).await?;
    let copied = match args.recursive {
        true => direction.copy_tree(&session, args.force).await,
        false => direction.copy(&session, args.force).await,
    };
    let closed = session.close().await;
    let copied = copied?;
    closed?;
    if args.json {
        let mut object = json!({ "path": copied.path, "bytes": copied.bytes });
        if let Some(files) = copied.files {
            object["files"] = files.into();
        }
        json::print(&object);
    }
    Ok(0)
}

/// What was written.
pub(crate) struct Copied {
    pub path: String,
    pub bytes: u64,
    /// How many, of a directory.
    pub files: Option<usize>,
}

impl Copied {
    fn file((path, bytes): (String, u64)) -> Self {
        Self {
            path,
            bytes,
            files: None,
        }
    }
}

enum Direction {
    In { from: Endpoint, to: String },
    Out { from: String, to: Endpoint },
}

impl Direction {
    async fn copy_tree(self, session: &Session, force: bool) -> Result<Copied, Failure> {
        match self {
            Direction::In {
                from: Endpoint::Local(from),
                to,
            } if from.is_dir() => copy_tree::upload(session, &from, &to, force).await,
            Direction::Out {
                from,
                to: Endpoint::Local(to),
            } if kind_inside(session, &from).await? == Some(FileKind::Directory) => {
                copy_tree::download(session, &from, &to).await
            }
            // One file, as without the flag.
            other => other.copy(session, force).await,
        }
    }

    async fn copy(self, session: &Session, force: bool) -> Result<Copied, Failure> {
        let copied = self.copy_file(session, force).await;
        copied.map(Copied::file)
    }

    /// Returns the path that was written, and the number of bytes.
    async fn copy_file(self, session: &Session, force: bool) -> Result<(String, u64), Failure> {
        match self {
            Direction::In {
                from: Endpoint::Local(file),
                to,
            } => {
                let opened =
                    brig_sandbox::open_named(&file).map_err(|error| match error.kind() {
                        ErrorKind::IsADirectory => is_directory(&file.display().to_string()),
                        _ => local(&file, &error),
                    })?;
                let opened = tokio::fs::File::from_std(opened);
                let meta = opened.metadata().await.map_err(|e| local(&file, &e))?;
                let mode = meta.permissions().mode() & 0o777;
                let own_name = file.file_name().and_then(|name| name.to_str());
                upload(session, &to, own_name, mode, opened, force).await
            }
            Direction::In { to, .. } => {
                upload(session, &to, None, 0o644, tokio::io::stdin(), force).await
            }
            Direction::Out {
                from,
                to: Endpoint::Local(file),
            } => download(session, &from, &file, force).await,
            Direction::Out { from, .. } => {
                let bytes = to_stdout(session, &from).await?;
                Ok(("-".into(), bytes))
            }
        }
    }
}

/// On a terminal, escape sequences are shown and not interpreted. Elsewhere the bytes are unchanged.
async fn to_stdout(session: &Session, from: &str) -> Result<u64, Failure> {
    let failed = |error| Failure::file("-", &error);
    let mut stdout = tokio::io::stdout();
    if !std::io::stdout().is_terminal() {
        let bytes = session.download(from, &mut stdout).await?;
        stdout.flush().await.map_err(failed)?;
        return Ok(bytes);
    }
    let (mut into, out) = tokio::io::duplex(64 << 10);
    let show = async {
        // Dropped with this block, so that no writer waits for it.
        let mut out = out;
        let mut shown = TerminalEscaper::new(OutputFormat::Text);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = out.read(&mut buffer).await?;
            let text = match count {
                0 => shown.finish(),
                _ => shown.push(&buffer[..count]),
            };
            stdout.write_all(text.as_bytes()).await?;
            if count == 0 {
                return stdout.flush().await;
            }
        }
    };
    let download = async {
        let done = session.download(from, &mut into).await;
        drop(into);
        done
    };
    let (done, shown) = tokio::join!(download, show);
    shown.map_err(failed)?;
    Ok(done?)
}

async fn upload(
    session: &Session,
    to: &str,
    own_name: Option<&str>,
    mode: u32,
    mut content: impl AsyncRead + Send + Unpin,
    force: bool,
) -> Result<(String, u64), Failure> {
    let target = target_inside(session, to, own_name, force).await?;
    let bytes = session.upload(&target, mode, &mut content).await?;
    Ok((target, bytes))
}

/// A file goes into a directory under its own name. An existing file is replaced only if forced.
async fn target_inside(
    session: &Session,
    to: &str,
    own_name: Option<&str>,
    force: bool,
) -> Result<String, Failure> {
    let mut target = to.to_owned();
    let mut found = kind_inside(session, &target).await?;
    if found == Some(FileKind::Directory) || target.is_empty() || target.ends_with('/') {
        let own_name = own_name.ok_or_else(|| {
            Failure::usage(format!(
                "`{to}` is a directory, and standard input has no file name"
            ))
        })?;
        let folder = target.trim_end_matches('/');
        target = match (folder, to.is_empty()) {
            (_, true) => own_name.to_owned(),
            (folder, false) => format!("{folder}/{own_name}"),
        };
        found = kind_inside(session, &target).await?;
    }
    match found {
        Some(FileKind::Directory) => Err(Failure::usage(format!("`{target}` is a directory"))),
        Some(_) if !force => Err(exists(&target)),
        _ => Ok(target),
    }
}

pub(crate) async fn kind_inside(
    session: &Session,
    path: &str,
) -> Result<Option<FileKind>, Failure> {
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name.is_empty() || name == "." || path == "/workspace" {
        return Ok(Some(FileKind::Directory));
    }
    let folder = if folder.is_empty() { "." } else { folder };
    let entries = match session.list_files(folder).await {
        Ok(entries) => entries,
        // A missing directory has no entries.
        Err(_) if folder != "." && Box::pin(kind_inside(session, folder)).await?.is_none() => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    Ok(entries
        .into_iter()
        .find(|entry| entry.raw == name.as_bytes())
        .map(|entry| entry.kind))
}

/// Writes a temporary file in the target directory and renames it when complete. A file from a sandbox
/// is never made executable, and a link in its place is replaced, not followed. The directory is the
/// one that was named, not one that a link of the code leads to, and is held open by descriptor.
async fn download(
    session: &Session,
    from: &str,
    to: &Path,
    force: bool,
) -> Result<(String, u64), Failure> {
    let target = if to.is_dir() {
        let name = from
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .filter(|name| !["", ".", ".."].contains(name));
        to.join(name.ok_or_else(|| is_directory(from))?)
    } else if to.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(local(to, &ErrorKind::NotFound.into()));
    } else {
        to.to_owned()
    };
    let name = target
        .file_name()
        .ok_or_else(|| local(to, &ErrorKind::NotFound.into()))?;
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let held = brig_sandbox::follow(parent.unwrap_or(Path::new(".")))
        .and_then(brig_input::open_directory_without_links)
        .map_err(|error| local(&target, &error))?;
    let directory = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let place = directory.join(name);
    if !force && place.symlink_metadata().is_ok() {
        return Err(exists(&target.display().to_string()));
    }
    let temporary = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(&directory)
        .map_err(|error| local(&target, &error))?;
    let file = temporary
        .as_file()
        .try_clone()
        .map_err(|error| local(&target, &error))?;
    let mut file = tokio::fs::File::from_std(file);
    let bytes = session.download(from, &mut file).await?;
    file.flush().await.map_err(|error| local(&target, &error))?;
    let persisted = if force {
        temporary.persist(&place)
    } else {
        temporary.persist_noclobber(&place)
    };
    match persisted {
        Ok(_) => Ok((target.display().to_string(), bytes)),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            Err(exists(&target.display().to_string()))
        }
        Err(error) => Err(local(&target, &error.error)),
    }
}

pub(crate) fn local(path: &Path, error: &std::io::Error) -> Failure {
    Failure::file(&path.display().to_string(), error)
}

pub(crate) fn exists(path: &str) -> Failure {
    Failure::new(
        ReasonCode::FileExists,
        format!("file `{path}` already exists"),
    )
    .with_hint("replace it with --force")
}

fn is_directory(path: &str) -> Failure {
    Failure::new(ReasonCode::FileFolder, format!("`{path}` is a directory"))
        .with_hint("copy a directory with -r")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_before_the_colon_is_the_inside() {
        let inside = |name: &str, path: &str| Endpoint::Inside(name.parse().unwrap(), path.into());
        assert_eq!(Endpoint::parse("build:a/b"), inside("build", "a/b"));
        assert_eq!(Endpoint::parse("alice/build:"), inside("alice/build", ""));
        assert_eq!(Endpoint::parse("build:a:b"), inside("build", "a:b"));
        assert_eq!(Endpoint::parse("-"), Endpoint::Stream);
        for local in ["./a:b", "/a:b", "../a:b", "a/b/c:d", "plain"] {
            assert_eq!(
                Endpoint::parse(local),
                Endpoint::Local(local.into()),
                "{local}"
            );
        }
    }
}
