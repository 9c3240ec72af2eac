//! YAML, from the events of `saphyr_parser`.
//!
//! Not a loader from a crate: `serde_yaml` is unmaintained and gives no positions, and `saphyr` resolves
//! words by YAML 1.2 only (policies were written for PyYAML, which reads 1.1) and copies what aliases
//! repeat without a limit.

use std::collections::HashMap;
use std::fmt::Write as _;

use brig_python_semantics::Value;
use brig_reason::ReasonCode;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{
    Compat, MAX_DEPTH, MAX_NODES, MAX_TEXT, Node, NodeKind, Pair, Pairs, duplicate, scalar, tag,
    too_deep, too_many,
};
use crate::problem::{Fault, KeyPath, Position, ProblemLog};

pub(super) fn parse(text: &str, compat: Compat, log: &mut ProblemLog) -> Option<Node> {
    let mut composer = Composer {
        compat,
        log,
        open: Vec::new(),
        anchors: HashMap::new(),
        read: Weight::default(),
        copied: Weight::default(),
        root: None,
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => {
                if composer.event(event, span).is_err() {
                    return None;
                }
            }
            Err(error) => {
                let marker = error.marker();
                let fault = Fault::new(
                    ReasonCode::PolicyYaml,
                    format!("not YAML: {}", error.info()),
                )
                .fix("check indentation, quotes and brackets here and just before");
                let at = place(marker.line(), marker.col());
                let path = composer.path();
                composer.log.error(at, &KeyPath::written(&path), fault);
                return None;
            }
        }
    }
    // Nothing at all is null.
    Some(composer.root.unwrap_or(Node {
        at: Position::START,
        kind: NodeKind::Scalar(Value::Null),
    }))
}

/// The reason is in the log already.
struct Stop;

struct Composer<'l> {
    compat: Compat,
    log: &'l mut ProblemLog,
    open: Vec<Open>,
    /// Complete nodes that have a name, and what they weigh.
    anchors: HashMap<usize, (Node, Weight)>,
    /// The whole document, with what aliases repeat.
    read: Weight,
    /// What was copied, for anchors to keep and for aliases to repeat.
    copied: Weight,
    root: Option<Node>,
}

/// What values take up: their number, and the bytes of their texts and keys.
#[derive(Clone, Copy, Default)]
struct Weight {
    nodes: usize,
    bytes: usize,
}

impl Weight {
    fn add(&mut self, other: Weight) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn since(self, before: Weight) -> Weight {
        Weight {
            nodes: self.nodes - before.nodes,
            bytes: self.bytes - before.bytes,
        }
    }

    fn is_too_much(self) -> bool {
        self.nodes > MAX_NODES || self.bytes > MAX_TEXT
    }
}

/// A list or map whose end has not come yet.
struct Open {
    at: Position,
    anchor: usize,
    before: Weight,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Node>),
    Map {
        pairs: Pairs,
        key: Option<(Key, Position)>,
        /// Maps that `<<` brings in, which AGT allows.
        merged: Pairs,
    },
}

enum Key {
    Text(String),
    Merge,
    /// A key that no field has: `1`, `true`, a list. It was reported.
    Unusable,
}

impl Composer<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        let at = place(span.start.line(), span.start.col());
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                if self.root.is_some() {
                    let fault = Fault::new(ReasonCode::PolicyYaml, "a second document in one file")
                        .fix("put it into a separate file");
                    self.log.error(at, &KeyPath::Root, fault);
                    return Err(Stop);
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let weight = Weight {
                    nodes: 1,
                    bytes: text.len(),
                };
                self.count(weight, at)?;
                let value = self.scalar(&text, style, tag.as_deref(), at)?;
                let node = Node {
                    at,
                    kind: NodeKind::Scalar(value),
                };
                self.remember(anchor, &node, weight)?;
                self.place(node, style == ScalarStyle::Plain && text == "<<")
            }
            Event::SequenceStart(anchor, tag) => {
                self.collection_tag(tag.as_deref(), "seq", at)?;
                self.open(at, anchor, OpenKind::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.collection_tag(tag.as_deref(), "map", at)?;
                let kind = OpenKind::Map {
                    pairs: Pairs::default(),
                    key: None,
                    merged: Pairs::default(),
                };
                self.open(at, anchor, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, at),
        }
    }

    fn count(&mut self, weight: Weight, at: Position) -> Result<(), Stop> {
        self.read.add(weight);
        if self.read.is_too_much() {
            too_many(at, self.log);
            return Err(Stop);
        }
        Ok(())
    }

    /// Before anything is copied: anchors within anchors multiply the size of a file.
    fn count_copy(&mut self, weight: Weight, at: Position) -> Result<(), Stop> {
        self.copied.add(weight);
        if self.copied.is_too_much() {
            too_many(at, self.log);
            return Err(Stop);
        }
        Ok(())
    }

    fn open(&mut self, at: Position, anchor: usize, kind: OpenKind) -> Result<(), Stop> {
        let before = self.read;
        self.count(Weight { nodes: 1, bytes: 0 }, at)?;
        if self.open.len() >= MAX_DEPTH {
            too_deep(at, self.log);
            return Err(Stop);
        }
        self.open.push(Open {
            at,
            anchor,
            before,
            kind,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Stop> {
        let Some(open) = self.open.pop() else {
            return Err(Stop);
        };
        let kind = match open.kind {
            OpenKind::List(items) => NodeKind::List(items),
            OpenKind::Map {
                mut pairs, merged, ..
            } => {
                for pair in merged.pairs {
                    if pairs.find(&pair.key).is_none() {
                        pairs.insert(pair);
                    }
                }
                NodeKind::Map(pairs.pairs)
            }
        };
        let node = Node { at: open.at, kind };
        self.remember(open.anchor, &node, self.read.since(open.before))?;
        self.place(node, false)
    }

    fn remember(&mut self, anchor: usize, node: &Node, weight: Weight) -> Result<(), Stop> {
        if anchor != 0 {
            self.count_copy(weight, node.at)?;
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), Stop> {
        let Some((_, weight)) = self.anchors.get(&anchor) else {
            let fault = Fault::new(
                ReasonCode::PolicyYaml,
                "an alias for the very value it is part of",
            )
            .fix("write the value out");
            self.log.error(at, &KeyPath::Root, fault);
            return Err(Stop);
        };
        let weight = *weight;
        self.count(weight, at)?;
        self.count_copy(weight, at)?;
        let node = self.anchors[&anchor].0.clone();
        if self.open.len() + depth(&node) > MAX_DEPTH {
            too_deep(at, self.log);
            return Err(Stop);
        }
        self.place(Node { at, ..node }, false)
    }

    /// Puts a complete node where it belongs.
    fn place(&mut self, node: Node, merge: bool) -> Result<(), Stop> {
        let Self { compat, log, .. } = self;
        let mut again = None;
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => {
                self.root = Some(node);
            }
            Some(OpenKind::List(items)) => items.push(node),
            Some(OpenKind::Map { pairs, key, merged }) => match key.take() {
                None => *key = Some((as_key(&node, merge, *compat, log), node.at)),
                Some((Key::Text(name), at)) => {
                    let pair = Pair {
                        key: name,
                        at,
                        value: node,
                    };
                    again = pairs.insert(pair);
                }
                Some((Key::Merge, at)) => bring_in(node, at, merged, log)?,
                Some((Key::Unusable, _)) => {}
            },
        }
        if let Some(again) = again {
            // The key was taken, so this is the path to its map.
            let path = self.path();
            duplicate(self.compat, self.log, &path, &again);
        }
        Ok(())
    }

    /// The path to what comes next.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.kind {
                OpenKind::List(items) => {
                    let _ = write!(path, "[{}]", items.len());
                }
                OpenKind::Map {
                    key: Some((Key::Text(key), _)),
                    ..
                } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(key);
                }
                OpenKind::Map { .. } => {}
            }
        }
        path
    }

    fn expects_key(&self) -> bool {
        let kind = self.open.last().map(|open| &open.kind);
        matches!(kind, Some(OpenKind::Map { key: None, .. }))
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        at: Position,
    ) -> Result<Value, Stop> {
        if style == ScalarStyle::Plain && text == "<<" && self.expects_key() {
            return Ok(text.into());
        }
        let resolved = match tag {
            None if style == ScalarStyle::Plain => scalar::resolve(text, self.compat),
            None => Ok(text.into()),
            Some(tag) => tag::scalar(text, tag, self.compat),
        };
        match resolved {
            Ok(value) => Ok(value),
            Err(fault) => {
                let path = self.path();
                self.log.error(at, &KeyPath::written(&path), fault);
                // The file is refused. Other problems in it can still be reported.
                Ok(scalar::resolve(text, Compat::Agt).unwrap_or_else(|_| text.into()))
            }
        }
    }

    fn collection_tag(&mut self, tag: Option<&Tag>, own: &str, at: Position) -> Result<(), Stop> {
        let Some(tag) = tag else { return Ok(()) };
        if self.compat == Compat::Agt && tag.is_yaml_core_schema() && tag.suffix == own {
            return Ok(());
        }
        let path = self.path();
        self.log
            .error(at, &KeyPath::written(&path), tag::refused(tag));
        Ok(())
    }
}

fn as_key(node: &Node, merge: bool, compat: Compat, log: &mut ProblemLog) -> Key {
    if merge {
        if compat == Compat::Agt {
            return Key::Merge;
        }
        let fault = Fault::new(ReasonCode::PolicyYaml, "`<<` brings in another map")
            .fix("write its entries out");
        log.error(node.at, &KeyPath::Root, fault);
        return Key::Unusable;
    }
    match &node.kind {
        NodeKind::Scalar(Value::Text(key)) => Key::Text(key.clone()),
        _ => {
            let fault = Fault::new(
                ReasonCode::PolicyYaml,
                format!("a key must be text, found {}", node.describe()),
            )
            .fix("quote the key");
            // Also for AGT: a condition may depend on what would be dropped.
            log.error(node.at, &KeyPath::Root, fault);
            Key::Unusable
        }
    }
}

fn bring_in(
    node: Node,
    at: Position,
    merged: &mut Pairs,
    log: &mut ProblemLog,
) -> Result<(), Stop> {
    let maps = match node.kind {
        NodeKind::Map(_) => vec![node],
        NodeKind::List(items) => items,
        NodeKind::Scalar(_) => Vec::new(),
    };
    let fault = |message| Fault::new(ReasonCode::PolicyYaml, message).fix("write its entries out");
    if maps.is_empty() {
        log.error(
            at,
            &KeyPath::Root,
            fault("`<<` needs a map, or a list of maps"),
        );
        return Err(Stop);
    }
    for map in maps {
        let NodeKind::Map(pairs) = map.kind else {
            log.error(
                at,
                &KeyPath::Root,
                fault("`<<` needs a map, or a list of maps"),
            );
            return Err(Stop);
        };
        for pair in pairs {
            // Of several maps, the first that has the key counts.
            if merged.find(&pair.key).is_none() {
                merged.insert(pair);
            }
        }
    }
    log.warning(at, &KeyPath::Root, fault("`<<` brings in another map"));
    Ok(())
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Scalar(_) => 0,
        NodeKind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        NodeKind::Map(pairs) => {
            1 + pairs
                .iter()
                .map(|pair| depth(&pair.value))
                .max()
                .unwrap_or(0)
        }
    }
}

fn place(line: usize, column: usize) -> Position {
    Position {
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column + 1).unwrap_or(u32::MAX),
    }
}
