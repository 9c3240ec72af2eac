//! A file as a tree in which every value has its position, from YAML or JSON.

mod json;
mod scalar;
mod tag;
mod yaml;

use std::collections::HashMap;

use brig_python_semantics::{Map, Value};
use brig_reason::ReasonCode;

use crate::problem::{Fault, KeyPath, Position, ProblemLog};

/// Larger files are refused.
pub const MAX_BYTES: usize = 1 << 20;
/// Deeper nesting is refused.
const MAX_DEPTH: usize = 64;
/// Values of a file, with those that aliases repeat.
const MAX_NODES: usize = 200_000;
/// Bytes of text in a file, with those that aliases repeat.
const MAX_TEXT: usize = 4 << 20;

/// The syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML, which is what a file is unless its name ends in `.json`.
    Yaml,
    /// JSON, for names that end in `.json`.
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
    /// Everything that is not certainly meant is an error.
    #[default]
    Strict,
    /// What AGT accepts is accepted, with a warning.
    Agt,
}

/// A value in a file.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where the value begins.
    pub at: Position,
    /// The value itself.
    pub kind: NodeKind,
}

/// What a value in a file is.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Anything but lists and maps.
    Scalar(Value),
    /// A list, in the order of the file.
    List(Vec<Node>),
    /// A map, in the order of the file.
    Map(Vec<Pair>),
}

/// A key of a map, with its value.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The key, as text.
    pub key: String,
    /// Where the key begins.
    pub at: Position,
    /// What the key is set to.
    pub value: Node,
}

impl Node {
    /// What the value is, in the words of messages, such as `a list`.
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            NodeKind::Scalar(value) => value.kind(),
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }

    /// The value without positions.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar(value) => value.clone(),
            NodeKind::List(items) => Value::List(items.iter().map(Node::to_value).collect()),
            NodeKind::Map(pairs) => {
                let entries = pairs.iter().map(|pair| (&*pair.key, pair.value.to_value()));
                Value::Map(entries.collect::<Map>())
            }
        }
    }
}

/// Reads a file. Nothing if it can't be parsed; the reason is in the log.
pub fn parse(text: &[u8], format: Format, compat: Compat, log: &mut ProblemLog) -> Option<Node> {
    if text.len() > MAX_BYTES {
        let fault = Fault::new(
            ReasonCode::PolicyTooLarge,
            format!(
                "the file has {} bytes, at most {MAX_BYTES} are read",
                text.len()
            ),
        )
        .fix("split it into several policies");
        log.error(Position::START, &KeyPath::Root, fault);
        return None;
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = match str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            let valid = str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default();
            return unreadable("the file is not UTF-8", valid, log);
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

/// One line of JSON from a program. Its length is not limited, the number of its values is.
pub fn parse_line(text: &str, log: &mut ProblemLog) -> Option<Node> {
    json::parse(text, Compat::Agt, MAX_NODES, log)
}

/// JSON that Brig wrote from a tree within all limits. It may be larger than they are, because
/// aliases are written out.
pub fn parse_unlimited(text: &str, log: &mut ProblemLog) -> Option<Node> {
    json::parse(text, Compat::Agt, usize::MAX, log)
}

fn unreadable(problem: &str, before: &str, log: &mut ProblemLog) -> Option<Node> {
    let fault =
        Fault::new(ReasonCode::PolicyEncoding, problem).fix("save the file as plain UTF-8 text");
    log.error(position_after(before), &KeyPath::Root, fault);
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

/// Reports a key that is given twice in the map at `path`.
fn duplicate(compat: Compat, log: &mut ProblemLog, path: &str, again: &Duplicate) {
    let Duplicate { key, at, first } = again;
    let entry = match path {
        "" => key.clone(),
        path => format!("{path}.{key}"),
    };
    let entry = KeyPath::written(&entry);
    let fault = Fault::new(
        ReasonCode::PolicyDuplicateKey,
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
            fault.fix("the last one is used; remove the other"),
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

fn too_deep(at: Position, log: &mut ProblemLog) {
    let fault = Fault::new(
        ReasonCode::PolicyTooDeep,
        format!("nested deeper than {MAX_DEPTH}"),
    )
    .fix("write it with fewer levels");
    log.error(at, &KeyPath::Root, fault);
}

fn too_many(at: Position, log: &mut ProblemLog) {
    let fault = Fault::new(
        ReasonCode::PolicyTooLarge,
        format!(
            "more than {MAX_NODES} values or {MAX_TEXT} bytes of text, with what aliases repeat"
        ),
    )
    .fix("write out less, and repeat less with aliases");
    log.error(at, &KeyPath::Root, fault);
}
