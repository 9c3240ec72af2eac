//! Opening a log to write: making a new one, or going on where the last writer ended.

use std::fs;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use super::Options;
use super::base::{Base, PRUNED, is_signed};
use super::directory::{LogDirectory, SMALL, new_file};
use super::error::{LogError, Result};
use super::keys;
use super::lines::Lines;
use super::nodes::{self, NodeFile, stored_peaks};
use super::read::Snapshot;
use super::segment::{self, Segment};
use super::writer::{HEAD, Room, Writer, follow, open_head, own_record};
use crate::line::Line;
use crate::note::SecretKey;
use crate::tree::Frontier;
use crate::{Event, Hash, Head};

impl Writer {
    pub(super) fn open(path: &Path, options: Options) -> Result<Self> {
        let directory = LogDirectory::create(path)?;
        let _guard = directory.lock()?;
        let head = directory.file(HEAD);
        match brig_input::read_unlinked(&head, SMALL) {
            Ok(note) => resume(directory, options, &note),
            Err(error) if error.kind() == io::ErrorKind::NotFound => begin(directory, options),
            Err(error) => Err(LogError::io("read", &head)(error)),
        }
    }
}

/// A new log. Its head comes last, so without a head there is at most one record.
fn begin(directory: LogDirectory, options: Options) -> Result<Writer> {
    // Removing the head and the records must not lead to a fresh log under the old key.
    let nodes = fs::metadata(directory.file(nodes::NAME)).map_or(0, |found| found.len());
    if nodes > nodes::OF_ONE_RECORD || directory.file(PRUNED.0).exists() {
        return Err(LogError::Head("it is missing".into()));
    }
    match directory.segments()?.as_slice() {
        [] => {}
        [0] if lines_in(&directory, 0)? <= 1 => {
            let path = directory.segment(0);
            fs::remove_file(&path).map_err(LogError::io("remove", &path))?;
        }
        _ => return Err(LogError::Head("it is missing".into())),
    }
    let key = match keys::load(&directory)? {
        Some(key) => key,
        None => keys::create(&directory)?,
    };
    keys::complete(&directory, &key)?;
    let nodes = open_nodes(&directory)?;
    let segment = Segment::open(&directory, 0)?;
    directory.sync()?;
    let created = own_record(Event::LogCreated {
        origin: key.public().name().to_owned(),
        key: key.public().to_string(),
    })?;
    let mut writer = Writer {
        directory,
        options,
        tags: key.tags(),
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

fn resume(directory: LogDirectory, options: Options, note: &str) -> Result<Writer> {
    let (key, head) = key_and_head(&directory, note)?;
    let pruned = match Base::of_pruned(&directory)? {
        Some((base, note)) => {
            // Left by an interrupted prune. Nothing is removed that the log's key did not sign.
            if is_signed(&note, [key.public()]) {
                directory.remove_before(base.size)?;
            }
            Some(base)
        }
        None => None,
    };
    let nodes = open_nodes(&directory)?;
    let known = nodes.frontier(head.size).ok();
    let frontier = match known.filter(|frontier| frontier.root() == head.root) {
        Some(frontier) => frontier,
        None => rebuild(&directory, &nodes, &head, pruned.as_ref())?,
    };
    let last = nodes
        .leaf(head.size - 1)
        .map_err(LogError::io("read", &directory.file(nodes::NAME)))?;
    let segment = segment_after(&directory, &head, &last)?;
    let file = open_head(&directory.file(HEAD))?;
    let mut writer = Writer {
        directory,
        options,
        tags: key.tags(),
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
    keys::complete(&writer.directory, &writer.key)?;
    if keys::load_next(&writer.directory)?.is_some() {
        keys::discard_next(&writer.directory)?;
    }
    if !writer.repairs.is_empty() {
        let repairs = std::mem::take(&mut writer.repairs);
        writer.add(repairs.iter().map(String::as_str))?;
        writer.seal()?;
    }
    Ok(writer)
}

fn key_and_head(directory: &LogDirectory, note: &str) -> Result<(SecretKey, Head)> {
    let key = keys::load(directory)?.ok_or_else(|| LogError::Key {
        path: directory.file("key"),
        problem: "it is missing".into(),
    })?;
    let wrong = match Head::open(note, key.public()) {
        Ok(head) if head.size > 0 => return Ok((key, head)),
        Ok(_) => return Err(LogError::Head("it covers no records".into())),
        Err(error) => error,
    };
    // A rotation may have ended right after its first head.
    if let Some(next) = keys::load_next(directory)?
        && let Ok(head) = Head::open(note, next.public())
        && head.size > 0
    {
        keys::promote(directory, &next)?;
        return Ok((next, head));
    }
    Err(LogError::Head(wrong.to_string()))
}

fn open_nodes(directory: &LogDirectory) -> Result<NodeFile> {
    let path = directory.file(nodes::NAME);
    let file = new_file().open(&path);
    Ok(NodeFile(file.map_err(LogError::io("open", &path))?))
}

/// The segment that goes on after the head, read up to there.
fn segment_after(directory: &LogDirectory, head: &Head, last: &Hash) -> Result<Segment> {
    let seq = head.size - 1;
    let starts = directory.segments()?;
    let Some(start) = starts.iter().rev().find(|start| **start <= seq) else {
        return Err(LogError::Truncated {
            found: 0,
            expected: head.size,
        });
    };
    let mut segment = Segment::open(directory, *start)?;
    let wrong = || LogError::io("read", &segment.path);
    let Some(offset) = segment::find(&segment.file, &segment.path, seq)? else {
        return Err(LogError::Truncated {
            found: start + lines_in(directory, *start)?,
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

fn lines_in(directory: &LogDirectory, start: u64) -> Result<u64> {
    let path = directory.segment(start);
    let wrong = || LogError::io("read", &path);
    let mut lines = Lines::new(brig_input::open_unlinked(&path).map_err(wrong())?);
    let mut count = 0;
    while lines.next().map_err(wrong())?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Makes the nodes again, from all records that the head covers.
fn rebuild(
    directory: &LogDirectory,
    nodes: &NodeFile,
    head: &Head,
    pruned: Option<&Base>,
) -> Result<Frontier> {
    let path = directory.file(nodes::NAME);
    let wrong = || LogError::io("write", &path);
    nodes.0.set_len(0).map_err(wrong())?;
    // Of what was pruned only the roots of its subtrees are known.
    if let Some(frontier) = pruned.and_then(Base::frontier) {
        nodes.write_peaks(&frontier).map_err(wrong())?;
    }
    (&nodes.0).seek(SeekFrom::End(0)).map_err(wrong())?;
    let mut out = BufWriter::new(&nodes.0);
    let mut failed = Ok(());
    let frontier = replay(directory, head, pruned, |hash| {
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
    let pruned = snapshot.pruned().map(|(base, _)| base);
    if let Some(frontier) = pruned.and_then(Base::frontier) {
        for (place, peak) in stored_peaks(&frontier) {
            nodes.resize(usize::try_from(place).unwrap_or(usize::MAX), Hash::ZERO);
            nodes.push(peak);
        }
    }
    replay(
        snapshot.directory(),
        &snapshot.parsed_head()?,
        pruned,
        |hash| {
            nodes.push(*hash);
        },
    )?;
    Ok(nodes)
}

/// Reads the records that the head covers, and yields the nodes of their tree.
fn replay(
    directory: &LogDirectory,
    head: &Head,
    pruned: Option<&Base>,
    mut stored: impl FnMut(&Hash),
) -> Result<Frontier> {
    let known = pruned.and_then(|base| Some((base.frontier()?, base.last()?)));
    let (mut frontier, mut last) = known.unwrap_or((Frontier::default(), Hash::ZERO));
    let first = frontier.size();
    let starts = directory
        .segments()?
        .into_iter()
        .filter(|start| *start >= first);
    'all: for start in starts {
        let path = directory.segment(start);
        let wrong = || LogError::io("read", &path);
        let mut lines = Lines::new(brig_input::open_unlinked(&path).map_err(wrong())?);
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
        return Err(LogError::Head("the records do not match it".into()));
    }
    Ok(frontier)
}
