//! A file as a tree in which every value knows its place, from YAML or JSON.

mod json;
mod scalar;
mod tag;
mod yaml;

use std::collections::HashMap;

use crate::problem::{Entry, Fault, Log, Position};
use crate::value::{Map, Value};

/// Larger files are not policies.
pub const MAX_BYTES: usize = 1 << 20;
/// Deeper ones neither.
const MAX_DEPTH: usize = 64;
/// Values of a file, with those that aliases repeat.
const MAX_NODES: usize = 200_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

impl Format {
    /// By the end of the name: `.json` is JSON, all else is YAML.
    pub fn of(file: &str) -> Self {
        let json =
            file.len() >= 5 && file.as_bytes()[file.len() - 5..].eq_ignore_ascii_case(b".json");
        if json { Format::Json } else { Format::Yaml }
    }
}

/// How strictly a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// Nonsense is an error.
    #[default]
    Strict,
    /// What AGT accepts is accepted, with a warning.
    Agt,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub at: Position,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// Anything but lists and maps.
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<Pair>),
}

#[derive(Clone, Debug)]
pub struct Pair {
    pub key: String,
    pub at: Position,
    pub value: Node,
}

impl Node {
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar(value) => value.kind(),
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Scalar(value) => value.clone(),
            Kind::List(items) => Value::List(items.iter().map(Node::to_value).collect()),
            Kind::Map(pairs) => {
                let entries = pairs.iter().map(|pair| (&*pair.key, pair.value.to_value()));
                Value::Map(entries.collect::<Map>())
            }
        }
    }
}

/// Reads a file. Nothing if it could not be read to its end; the log says why.
pub fn parse(text: &[u8], format: Format, compat: Compat, log: &mut Log) -> Option<Node> {
    if text.len() > MAX_BYTES {
        let fault = Fault::new(
            "policy.too-large",
            format!(
                "the file has {} bytes, at most {MAX_BYTES} are read",
                text.len()
            ),
        )
        .fix("split it into several policies");
        log.error(Position::START, &Entry::Root, fault);
        return None;
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = match str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            let sound = str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default();
            return unreadable("the file is not UTF-8", sound, log);
        }
    };
    match format {
        Format::Yaml => match text.find(is_forbidden) {
            Some(at) => unreadable("a control character", &text[..at], log),
            None => yaml::parse(text, compat, log),
        },
        Format::Json => json::parse(text, compat, MAX_NODES, log),
    }
}

/// JSON of any size: for what comes from a program, line by line.
pub(crate) fn parse_line(text: &str, log: &mut Log) -> Option<Node> {
    json::parse(text, Compat::Agt, MAX_NODES, log)
}

/// What was written out of a tree that was within all limits.
pub(crate) fn parse_own(text: &str, log: &mut Log) -> Option<Node> {
    json::parse(text, Compat::Agt, usize::MAX, log)
}

fn unreadable(problem: &str, before: &str, log: &mut Log) -> Option<Node> {
    let fault = Fault::new("policy.encoding", problem).fix("save the file as plain UTF-8 text");
    log.error(position_after(before), &Entry::Root, fault);
    None
}

/// What YAML allows only as an escape.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
}

fn position_after(text: &str) -> Position {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position {
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column).unwrap_or(u32::MAX),
    }
}

/// A key that its map has already.
struct Duplicate {
    key: String,
    at: Position,
    first: Position,
}

/// What is said of a key that is given again in the map to which `way` leads.
fn duplicate(compat: Compat, log: &mut Log, way: &str, again: &Duplicate) {
    let Duplicate { key, at, first } = again;
    let entry = match way {
        "" => key.clone(),
        way => format!("{way}.{key}"),
    };
    let entry = Entry::written(&entry);
    let fault = Fault::new(
        "policy.duplicate-key",
        format!(
            "the key {} was given on line {} already",
            crate::problem::quoted(key),
            first.line
        ),
    );
    match compat {
        Compat::Strict => log.error(*at, &entry, fault.fix("remove one of the two")),
        Compat::Agt => log.warning(
            *at,
            &entry,
            fault.fix("the last one counts; remove the other"),
        ),
    }
}

/// The pairs of one map, while it is read.
#[derive(Debug, Default)]
struct Pairs {
    pairs: Vec<Pair>,
    /// The places of the keys, once they are too many to look through.
    places: HashMap<String, usize>,
}

const MANY: usize = 16;

impl Pairs {
    fn find(&self, key: &str) -> Option<usize> {
        if self.pairs.len() <= MANY {
            return self.pairs.iter().position(|pair| pair.key == key);
        }
        self.places.get(key).copied()
    }

    /// The last of two values counts.
    fn insert(&mut self, pair: Pair) -> Option<Duplicate> {
        if let Some(place) = self.find(&pair.key) {
            let first = &mut self.pairs[place];
            first.value = pair.value;
            return Some(Duplicate {
                key: pair.key,
                at: pair.at,
                first: first.at,
            });
        }
        self.pairs.push(pair);
        if self.pairs.len() > MANY {
            let new = self.places.len();
            let pairs = self.pairs.iter().enumerate().skip(new);
            self.places
                .extend(pairs.map(|(place, pair)| (pair.key.clone(), place)));
        }
        None
    }
}

fn too_deep(at: Position, log: &mut Log) {
    let fault = Fault::new("policy.too-deep", format!("nested deeper than {MAX_DEPTH}"))
        .fix("write it with fewer levels");
    log.error(at, &Entry::Root, fault);
}

fn too_many(at: Position, log: &mut Log) {
    let fault = Fault::new("policy.too-large", format!("more than {MAX_NODES} values"))
        .fix("write out less, and repeat less with aliases");
    log.error(at, &Entry::Root, fault);
}
