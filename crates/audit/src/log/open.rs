//! Opening a log to write: making a new one, or going on where the last writer ended.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

use super::Options;
use super::error::{LogError, Result};
use super::folder::{Folder, new_file};
use super::keys;
use super::lines::Lines;
use super::nodes::{self, NodeFile};
use super::read::Snapshot;
use super::segment::{self, Segment};
use super::writer::{HEAD, Room, Writer, follow, open_head, own_record};
use crate::line::Line;
use crate::note::SecretKey;
use crate::tree::Frontier;
use crate::{Event, Hash, Head};

impl Writer {
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        let folder = Folder::create(path)?;
        let _guard = folder.lock()?;
        let head = folder.file(HEAD);
        match fs::read_to_string(&head) {
            Ok(note) => resume(folder, options, &note),
            Err(error) if error.kind() == io::ErrorKind::NotFound => begin(folder, options),
            Err(error) => Err(LogError::io("read", &head)(error)),
        }
    }
}

/// A new log. Its head comes last, so without a head there is at most one record.
fn begin(folder: Folder, options: Options) -> Result<Writer> {
    match folder.segments()?.as_slice() {
        [] => {}
        [0] if lines_in(&folder, 0)? <= 1 => {
            let path = folder.segment(0);
            fs::remove_file(&path).map_err(LogError::io("remove", &path))?;
        }
        _ => return Err(LogError::Head("it is missing".into())),
    }
    let key = match keys::load(&folder)? {
        Some(key) => key,
        None => keys::create(&folder)?,
    };
    let nodes = open_nodes(&folder)?;
    let segment = Segment::open(&folder, 0)?;
    folder.sync()?;
    let created = own_record(Event::LogCreated {
        origin: key.public().name().to_owned(),
        key: key.public().to_string(),
    })?;
    let mut writer = Writer {
        folder,
        options,
        key,
        head: None,
        nodes,
        segment,
        frontier: Frontier::default(),
        last: Hash::ZERO,
        room: Room::default(),
        repairs: Vec::new(),
        published: 0,
        broken: None,
    };
    writer.add([created.as_str()].into_iter())?;
    writer.seal()?;
    Ok(writer)
}

fn resume(folder: Folder, options: Options, note: &str) -> Result<Writer> {
    let (key, head) = key_and_head(&folder, note)?;
    let nodes = open_nodes(&folder)?;
    let known = nodes.frontier(head.size).ok();
    let frontier = match known.filter(|frontier| frontier.root() == head.root) {
        Some(frontier) => frontier,
        None => rebuild(&folder, &nodes, &head)?,
    };
    let last = nodes
        .leaf(head.size - 1)
        .map_err(LogError::io("read", &folder.file(nodes::NAME)))?;
    let segment = segment_after(&folder, &head, &last)?;
    let file = open_head(&folder.file(HEAD))?;
    let mut writer = Writer {
        folder,
        options,
        key,
        head: Some(file),
        nodes,
        segment,
        frontier,
        last,
        room: Room::default(),
        repairs: Vec::new(),
        published: head.size,
        broken: None,
    };
    writer.refresh(true)?;
    if keys::load_next(&writer.folder)?.is_some() {
        keys::discard_next(&writer.folder)?;
    }
    if !writer.repairs.is_empty() {
        let repairs = std::mem::take(&mut writer.repairs);
        writer.add(repairs.iter().map(String::as_str))?;
        writer.seal()?;
    }
    Ok(writer)
}

fn key_and_head(folder: &Folder, note: &str) -> Result<(SecretKey, Head)> {
    let key = keys::load(folder)?.ok_or_else(|| LogError::Key {
        path: folder.file("key"),
        problem: "it is missing".into(),
    })?;
    let wrong = match Head::open(note, key.public()) {
        Ok(head) if head.size > 0 => return Ok((key, head)),
        Ok(_) => return Err(LogError::Head("it speaks of no records".into())),
        Err(error) => error,
    };
    // A rotation may have ended right after its first head.
    if let Some(next) = keys::load_next(folder)?
        && let Ok(head) = Head::open(note, next.public())
        && head.size > 0
    {
        keys::promote(folder, &next)?;
        return Ok((next, head));
    }
    Err(LogError::Head(wrong.to_string()))
}

fn open_nodes(folder: &Folder) -> Result<NodeFile> {
    let path = folder.file(nodes::NAME);
    let file = new_file().open(&path);
    Ok(NodeFile(file.map_err(LogError::io("open", &path))?))
}

/// The segment that goes on after the head, read up to there.
fn segment_after(folder: &Folder, head: &Head, last: &Hash) -> Result<Segment> {
    let seq = head.size - 1;
    let starts = folder.segments()?;
    let Some(start) = starts.iter().rev().find(|start| **start <= seq) else {
        return Err(LogError::Truncated {
            found: 0,
            expected: head.size,
        });
    };
    let mut segment = Segment::open(folder, *start)?;
    let wrong = || LogError::io("read", &segment.path);
    let Some(offset) = segment::find(&segment.file, &segment.path, seq)? else {
        return Err(LogError::Truncated {
            found: start + lines_in(folder, *start)?,
            expected: head.size,
        });
    };
    let found = segment::line_at(&segment.file, offset).map_err(wrong())?;
    let (mut bytes, next) = found.ok_or(LogError::NoRecord(seq))?;
    match Line::check(&mut bytes) {
        Ok(line) if line.hash == *last => {}
        _ => return Err(LogError::damaged(seq, "it was changed")),
    }
    segment.offset = next;
    Ok(segment)
}

fn lines_in(folder: &Folder, start: u64) -> Result<u64> {
    let path = folder.segment(start);
    let wrong = || LogError::io("read", &path);
    let mut lines = Lines::new(File::open(&path).map_err(wrong())?);
    let mut count = 0;
    while lines.next().map_err(wrong())?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Makes the nodes again, from all records that the head speaks of.
fn rebuild(folder: &Folder, nodes: &NodeFile, head: &Head) -> Result<Frontier> {
    let path = folder.file(nodes::NAME);
    let wrong = || LogError::io("write", &path);
    nodes.0.set_len(0).map_err(wrong())?;
    (&nodes.0).rewind().map_err(wrong())?;
    let mut out = BufWriter::new(&nodes.0);
    let mut failed = Ok(());
    let frontier = replay(folder, head, |hash| {
        if failed.is_ok() {
            failed = out.write_all(&hash.0);
        }
    })?;
    failed.and_then(|()| out.flush()).map_err(wrong())?;
    Ok(frontier)
}

/// The nodes of a log that may only be read.
pub(crate) fn rebuilt_nodes(snapshot: &Snapshot) -> Result<Vec<Hash>> {
    let mut nodes = Vec::new();
    replay(snapshot.folder(), &snapshot.parsed_head()?, |hash| {
        nodes.push(*hash);
    })?;
    Ok(nodes)
}

/// Goes through the records that the head speaks of, and hands out the nodes of their tree.
fn replay(folder: &Folder, head: &Head, mut stored: impl FnMut(&Hash)) -> Result<Frontier> {
    let mut frontier = Frontier::default();
    let mut last = Hash::ZERO;
    'all: for start in folder.segments()? {
        let path = folder.segment(start);
        let wrong = || LogError::io("read", &path);
        let mut lines = Lines::new(File::open(&path).map_err(wrong())?);
        while let Some(bytes) = lines.next().map_err(wrong())? {
            if frontier.size() == head.size {
                break 'all;
            }
            last = follow(bytes, frontier.size(), &last)?.hash;
            frontier.push(last, &mut stored);
        }
    }
    if frontier.size() < head.size {
        return Err(LogError::Truncated {
            found: frontier.size(),
            expected: head.size,
        });
    }
    if frontier.root() != head.root {
        return Err(LogError::Head("the records are not those it signs".into()));
    }
    Ok(frontier)
}
