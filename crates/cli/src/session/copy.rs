//! `brig session cp`: one file in or out.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use brig_sandbox::Session;
use brig_sandbox::backend::FileKind;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWriteExt};

use super::find;
use crate::args::{CopyArgs, SessionName};
use crate::failure::Failure;
use crate::json;

/// One end of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// `-`
    Stream,
    Local(PathBuf),
    Inside(SessionName, String),
}

impl Place {
    /// What comes before the first `:` is a session if it can be one.
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

pub async fn run(args: &CopyArgs) -> Result<u8, Failure> {
    let (name, way) = match (Place::parse(&args.source), Place::parse(&args.target)) {
        (Place::Inside(..), Place::Inside(..)) => {
            return Err(Failure::usage("cannot copy from one session to another")
                .with_hint("copy out to `-` and in from `-`, with a pipe between"));
        }
        (Place::Inside(name, from), to) => (name, Way::Out { from, to }),
        (from, Place::Inside(name, to)) => (name, Way::In { from, to }),
        _ => {
            return Err(Failure::usage("neither end is in a session")
                .with_hint("write the end inside as SESSION:PATH"));
        }
    };
    if args.json
        && matches!(
            way,
            Way::Out {
                to: Place::Stream,
                ..
            }
        )
    {
        return Err(Failure::usage(
            "--json and the file cannot both go to stdout",
        ));
    }
    let session = find::open(&name).await?;
    let copied = way.go(&session, args.force).await;
    let closed = session.close().await;
    let (path, bytes) = copied?;
    closed?;
    if args.json {
        json::print(&json!({ "path": path, "bytes": bytes }));
    }
    Ok(0)
}

enum Way {
    In { from: Place, to: String },
    Out { from: String, to: Place },
}

impl Way {
    /// The path written to, and how many bytes.
    async fn go(self, session: &Session, force: bool) -> Result<(String, u64), Failure> {
        match self {
            Way::In {
                from: Place::Local(file),
                to,
            } => {
                let opened = tokio::fs::File::open(&file)
                    .await
                    .map_err(|e| local(&file, &e))?;
                let meta = opened.metadata().await.map_err(|e| local(&file, &e))?;
                if meta.is_dir() {
                    return Err(folder(&file.display().to_string()));
                }
                let mode = meta.permissions().mode() & 0o777;
                let own_name = file.file_name().and_then(|name| name.to_str());
                upload(session, &to, own_name, mode, opened, force).await
            }
            Way::In { to, .. } => {
                upload(session, &to, None, 0o644, tokio::io::stdin(), force).await
            }
            Way::Out {
                from,
                to: Place::Local(file),
            } => download(session, &from, &file, force).await,
            Way::Out { from, .. } => {
                let mut stdout = tokio::io::stdout();
                let bytes = session.download(&from, &mut stdout).await?;
                stdout.flush().await.map_err(|e| Failure::file("-", &e))?;
                Ok(("-".into(), bytes))
            }
        }
    }
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

/// Into a folder a file goes under its own name. What is there stays there unless forced.
async fn target_inside(
    session: &Session,
    to: &str,
    own_name: Option<&str>,
    force: bool,
) -> Result<String, Failure> {
    let mut target = to.to_owned();
    let mut found = kind_inside(session, &target).await?;
    if found == Some(FileKind::Folder) || target.is_empty() || target.ends_with('/') {
        let own_name = own_name.ok_or_else(|| {
            Failure::usage(format!(
                "`{to}` is a folder, and standard input has no name"
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
        Some(FileKind::Folder) => Err(Failure::usage(format!("`{target}` is a folder"))),
        Some(_) if !force => Err(exists(&target)),
        _ => Ok(target),
    }
}

async fn kind_inside(session: &Session, path: &str) -> Result<Option<FileKind>, Failure> {
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name.is_empty() || name == "." || path == "/workspace" {
        return Ok(Some(FileKind::Folder));
    }
    let folder = if folder.is_empty() { "." } else { folder };
    let entries = match session.list_files(folder).await {
        Ok(entries) => entries,
        // A folder that is not there holds nothing.
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

/// Written beside its place and moved there when complete. What comes from a sandbox is never
/// made executable, and a link that waits at its place is not followed.
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
            .filter(|name| !name.is_empty());
        to.join(name.ok_or_else(|| folder(from))?)
    } else {
        to.to_owned()
    };
    if !force && target.symlink_metadata().is_ok() {
        return Err(exists(&target.display().to_string()));
    }
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let temporary = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
        .map_err(|error| local(&target, &error))?;
    let file = temporary
        .as_file()
        .try_clone()
        .map_err(|error| local(&target, &error))?;
    let mut file = tokio::fs::File::from_std(file);
    let bytes = session.download(from, &mut file).await?;
    file.flush().await.map_err(|error| local(&target, &error))?;
    let persisted = if force {
        temporary.persist(&target)
    } else {
        temporary.persist_noclobber(&target)
    };
    match persisted {
        Ok(_) => Ok((target.display().to_string(), bytes)),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            Err(exists(&target.display().to_string()))
        }
        Err(error) => Err(local(&target, &error.error)),
    }
}

fn local(path: &Path, error: &std::io::Error) -> Failure {
    Failure::file(&path.display().to_string(), error)
}

fn exists(path: &str) -> Failure {
    Failure::new("file.exists", format!("file `{path}` exists already"))
        .with_hint("replace it with --force")
}

fn folder(path: &str) -> Failure {
    Failure::new("file.folder", format!("`{path}` is a folder"))
        .with_hint("tar c FOLDER | brig session exec -i SESSION -- tar x, or the other way round")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_before_the_colon_is_the_inside() {
        let inside = |name: &str, path: &str| Place::Inside(name.parse().unwrap(), path.into());
        assert_eq!(Place::parse("build:a/b"), inside("build", "a/b"));
        assert_eq!(Place::parse("alice/build:"), inside("alice/build", ""));
        assert_eq!(Place::parse("build:a:b"), inside("build", "a:b"));
        assert_eq!(Place::parse("-"), Place::Stream);
        for local in ["./a:b", "/a:b", "../a:b", "a/b/c:d", "plain"] {
            assert_eq!(Place::parse(local), Place::Local(local.into()), "{local}");
        }
    }
}
