//! Files of a session's workspace. Paths are inside the sandbox, and links are not followed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use brig_reason::ReasonCode;
use brig_sandbox::backend::FileKind;
use brig_sandbox::{Error, Session};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};
use tokio::io::AsyncWrite;

use crate::arguments::{ListFiles, ReadFile, WriteFile};
use crate::error::ToolError;
use crate::sessions::Sessions;
use crate::{images, text};

/// How much is read of a file: by default, and at most.
pub(crate) const READ: u64 = 64 * 1024;
pub(crate) const MOST_READ: u64 = 1024 * 1024;
/// The largest file that is written.
pub(crate) const LARGEST: u64 = 8 * 1024 * 1024;
/// How much of a file is passed over to find out its size.
const MEASURED: u64 = 256 * 1024 * 1024;
/// How many entries are listed, and how many levels.
pub(crate) const MOST_LISTED: usize = 1000;
pub(crate) const DEEPEST: u32 = 8;
/// How many directories one call lists.
const DIRECTORIES: usize = 200;

/// A part of a file.
#[derive(Debug)]
pub(crate) struct Part {
    pub bytes: Vec<u8>,
    /// Of the whole file.
    pub size: u64,
    offset: u64,
}

impl Part {
    /// Whether the file goes on after the part.
    pub(crate) fn is_truncated(&self) -> bool {
        self.offset + (self.bytes.len() as u64) < self.size
    }

    /// Whether it is the whole file.
    fn is_whole(&self) -> bool {
        self.offset == 0 && !self.is_truncated()
    }
}

/// Reads a part of a file.
pub(crate) async fn read(
    session: &Session,
    path: &str,
    offset: u64,
    limit: u64,
) -> Result<Part, Error> {
    let mut window = Window {
        skip: offset,
        limit,
        bytes: Vec::new(),
        passed: 0,
    };
    let size = session.download(path, &mut window).await?;
    Ok(Part {
        bytes: window.bytes,
        size,
        offset,
    })
}

/// Keeps a part of what is written to it.
struct Window {
    skip: u64,
    limit: u64,
    bytes: Vec<u8>,
    passed: u64,
}

impl AsyncWrite for Window {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let skipped = number(self.skip).min(bytes.len());
        self.skip -= skipped as u64;
        let left = number(self.limit).saturating_sub(self.bytes.len());
        let kept = &bytes[skipped..];
        let kept = &kept[..kept.len().min(left)];
        self.bytes.extend_from_slice(kept);
        self.passed += bytes.len() as u64;
        if self.passed > MEASURED {
            let problem =
                format!("it has more than {MEASURED} bytes; read a part of it with run_command");
            return Poll::Ready(Err(io::Error::other(problem)));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

pub(crate) async fn read_file(
    sessions: &Sessions,
    arguments: ReadFile,
) -> Result<CallToolResult, ToolError> {
    let used = sessions.named(arguments.session.id()).await?;
    let (offset, limit) = (arguments.offset.unwrap_or(0), arguments.limit);
    let limit = limit.unwrap_or(READ).clamp(1, MOST_READ);
    let path = &arguments.path;
    let mut part = (read(used.session(), path, offset, limit).await)
        .map_err(|error| sessions.failed(&error))?;
    // An image is of use only as a whole.
    let kind = images::kind(&part.bytes).filter(|_| offset == 0 && part.size <= MOST_READ);
    if kind.is_some() && !part.is_whole() {
        part = (read(used.session(), path, 0, MOST_READ).await)
            .map_err(|error| sessions.failed(&error))?;
    }
    let mut object = json!({
        "path": text::line(path),
        "size": part.size,
        "offset": offset,
        "bytes": part.bytes.len(),
        "truncated": part.is_truncated(),
    });
    if let Some(kind) = kind {
        object["image"] = kind.into();
        return Ok(success(vec![images::content(&part.bytes, kind)], object));
    }
    let shown = match text::exact(&part.bytes) {
        Some(text) => text.to_owned(),
        None => {
            object["content_base64"] = BASE64_STANDARD.encode(&part.bytes).into();
            object["escaped"] = true.into();
            text::lines(&part.bytes)
        }
    };
    let is_text = std::str::from_utf8(&part.bytes).is_ok();
    let content = match is_text {
        true => ContentBlock::text(&shown),
        false => ContentBlock::text(format!(
            "{} bytes that are not text, in content_base64",
            part.bytes.len()
        )),
    };
    if is_text {
        object["content"] = shown.into();
    }
    Ok(success(vec![content], object))
}

pub(crate) async fn write_file(
    sessions: &Sessions,
    arguments: WriteFile,
) -> Result<CallToolResult, ToolError> {
    let wrong = |problem: &str| ToolError::new(ReasonCode::McpArguments, problem);
    let mut bytes = match (arguments.content, arguments.content_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(encoded)) => BASE64_STANDARD
            .decode(encoded.trim())
            .map_err(|_| wrong("content_base64: not base64"))?,
        _ => return Err(wrong("give one of content and content_base64")),
    };
    let used = sessions.named(arguments.session.id()).await?;
    let (session, path) = (used.session(), &arguments.path);
    let _appending = used.open.appending.lock().await;
    if arguments.append == Some(true) {
        let mut whole = before(session, path)
            .await
            .map_err(|error| sessions.failed(&error))?;
        whole.append(&mut bytes);
        bytes = whole;
    }
    if bytes.len() as u64 > LARGEST {
        return Err(wrong("the file would be larger than 8 MiB"));
    }
    let written = session.upload(path, 0o644, bytes.as_slice()).await;
    let size = written.map_err(|error| sessions.failed(&error))?;
    let path = text::line(path);
    let content = ContentBlock::text(format!("{path}: {size} bytes"));
    let object = json!({"path": path, "bytes": size});
    Ok(success(vec![content], object))
}

/// How the system says that there is no such file or directory.
const MISSING: &str = "No such file or directory (os error 2)";

/// What a file contains that something is added to: nothing if there is none.
async fn before(session: &Session, path: &str) -> Result<Vec<u8>, Error> {
    let (directory, name) = match path.rsplit_once('/') {
        Some((directory, name)) => (directory, name),
        None => (".", path),
    };
    let entries = match session.list_files(directory).await {
        Ok(entries) => entries,
        // A directory that is missing is made. Whatever else is wrong, there may be a file, which is not replaced.
        Err(Error::File { problem, .. }) if problem.ends_with(MISSING) => Vec::new(),
        Err(error) => return Err(error),
    };
    if !entries.iter().any(|entry| entry.raw == name.as_bytes()) {
        return Ok(Vec::new());
    }
    let part = read(session, path, 0, LARGEST + 1).await?;
    match part.is_truncated() {
        false => Ok(part.bytes),
        true => Err(Error::File {
            path: text::line(path),
            problem: "it is larger than 8 MiB".into(),
        }),
    }
}

pub(crate) async fn list_files(
    sessions: &Sessions,
    arguments: ListFiles,
) -> Result<CallToolResult, ToolError> {
    let used = sessions.named(arguments.session.id()).await?;
    let depth = arguments.depth.unwrap_or(1).clamp(1, DEEPEST);
    let start = arguments.path.unwrap_or_else(|| ".".into());
    let listing = Listing::of(used.session(), &start, depth, MOST_LISTED).await;
    let listing = listing.map_err(|error| sessions.failed(&error))?;
    let lines: Vec<String> = listing.entries.iter().map(FileListing::line).collect();
    let mut shown = match lines.is_empty() {
        true => "no files".into(),
        false => lines.join("\n"),
    };
    if listing.truncated {
        shown.push_str("\n… and more");
    }
    let entries: Vec<Value> = listing.entries.iter().map(FileListing::json).collect();
    let object = json!({"entries": entries, "truncated": listing.truncated});
    Ok(success(vec![ContentBlock::text(shown)], object))
}

/// Files of a directory and of those below it.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub entries: Vec<FileListing>,
    truncated: bool,
}

#[derive(Debug)]
pub(crate) struct FileListing {
    /// As it is shown.
    pub path: String,
    /// Whether that differs from the real one.
    pub escaped: bool,
    pub kind: FileKind,
    pub size: u64,
}

impl FileListing {
    fn json(&self) -> Value {
        let mut object = json!({"path": self.path, "kind": self.kind, "size": self.size});
        if self.escaped {
            object["escaped"] = true.into();
        }
        object
    }

    fn line(&self) -> String {
        match self.kind {
            FileKind::Directory => format!("{}/", self.path),
            FileKind::File => format!("{} ({} bytes)", self.path, self.size),
            FileKind::Link => format!("{} (link)", self.path),
            _ => format!("{} (neither a file nor a directory)", self.path),
        }
    }
}

impl Listing {
    pub(crate) async fn of(
        session: &Session,
        start: &str,
        depth: u32,
        most: usize,
    ) -> Result<Self, Error> {
        let mut listing = Self::default();
        let mut left = std::collections::VecDeque::from([(start.to_owned(), depth)]);
        let mut listed = 0;
        while let Some((directory, depth)) = left.pop_front() {
            listed += 1;
            if listed > DIRECTORIES {
                listing.truncated = true;
                break;
            }
            let mut found = match session.list_files(&directory).await {
                Ok(found) => found,
                // One below may have gone meanwhile, or can't be entered.
                Err(Error::File { .. }) if listed > 1 => continue,
                Err(error) => return Err(error),
            };
            found.sort_by(|a, b| a.raw.cmp(&b.raw));
            for entry in found {
                if listing.entries.len() >= most {
                    listing.truncated = true;
                    return Ok(listing);
                }
                let real = std::str::from_utf8(&entry.raw).ok();
                let real = real.map(|name| joined(&directory, name));
                let (name, escaped) = text::name(&entry.raw);
                let (above, above_escaped) = text::name(directory.as_bytes());
                if entry.kind == FileKind::Directory && depth > 1 {
                    left.extend(real.map(|path| (path, depth - 1)));
                }
                listing.entries.push(FileListing {
                    path: joined(&above, &name),
                    escaped: escaped || above_escaped,
                    kind: entry.kind,
                    size: entry.size,
                });
            }
        }
        Ok(listing)
    }
}

fn joined(directory: &str, name: &str) -> String {
    match directory {
        "." => name.to_owned(),
        _ => format!("{}/{name}", directory.trim_end_matches('/')),
    }
}

fn success(content: Vec<ContentBlock>, object: Value) -> CallToolResult {
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(object);
    result
}
