//! YAML, event by event, so that every value keeps its place and nothing is repeated without
//! being counted.

use std::collections::HashMap;
use std::fmt::Write as _;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{
    Compat, Kind, MAX_DEPTH, MAX_NODES, Node, Pair, Pairs, duplicate, scalar, tag, too_deep,
    too_many,
};
use crate::problem::{Entry, Fault, Log, Position};
use crate::value::Value;

pub(super) fn parse(text: &str, compat: Compat, log: &mut Log) -> Option<Node> {
    let mut composer = Composer {
        compat,
        log,
        open: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
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
                let fault = Fault::new("policy.yaml", format!("not YAML: {}", error.info()))
                    .fix("look at indentation, quotes and brackets here and just before");
                let at = place(marker.line(), marker.col());
                let way = composer.way();
                composer.log.error(at, &Entry::written(&way), fault);
                return None;
            }
        }
    }
    // Nothing at all is null.
    Some(composer.root.unwrap_or(Node {
        at: Position::START,
        kind: Kind::Scalar(Value::Null),
    }))
}

/// The reason is in the log already.
struct Stop;

struct Composer<'l> {
    compat: Compat,
    log: &'l mut Log,
    open: Vec<Open>,
    /// Complete nodes that have a name, and the number of values in them.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    root: Option<Node>,
}

/// A list or map whose end has not come yet.
struct Open {
    at: Position,
    anchor: usize,
    first_node: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Node>),
    Map {
        pairs: Pairs,
        key: Option<(Key, Position)>,
        /// Maps that `<<` brings in, which AGT allows.
        merged: Vec<Pair>,
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
                    let fault = Fault::new("policy.yaml", "a second document in one file")
                        .fix("put it into a file of its own");
                    self.log.error(at, &Entry::Root, fault);
                    return Err(Stop);
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, at)?;
                let value = self.scalar(&text, style, tag.as_deref(), at)?;
                let node = Node {
                    at,
                    kind: Kind::Scalar(value),
                };
                self.remember(anchor, &node, 1);
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
                    merged: Vec::new(),
                };
                self.open(at, anchor, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, at),
        }
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), Stop> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            too_many(at, self.log);
            return Err(Stop);
        }
        Ok(())
    }

    fn open(&mut self, at: Position, anchor: usize, kind: OpenKind) -> Result<(), Stop> {
        let first_node = self.nodes;
        self.count(1, at)?;
        if self.open.len() >= MAX_DEPTH {
            too_deep(at, self.log);
            return Err(Stop);
        }
        self.open.push(Open {
            at,
            anchor,
            first_node,
            kind,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Stop> {
        let Some(open) = self.open.pop() else {
            return Err(Stop);
        };
        let kind = match open.kind {
            OpenKind::List(items) => Kind::List(items),
            OpenKind::Map {
                mut pairs, merged, ..
            } => {
                for pair in merged {
                    if pairs.find(&pair.key).is_none() {
                        pairs.insert(pair);
                    }
                }
                Kind::Map(pairs.pairs)
            }
        };
        let node = Node { at: open.at, kind };
        self.remember(open.anchor, &node, self.nodes - open.first_node);
        self.place(node, false)
    }

    fn remember(&mut self, anchor: usize, node: &Node, nodes: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), nodes));
        }
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), Stop> {
        let Some((node, nodes)) = self.anchors.get(&anchor) else {
            let fault = Fault::new("policy.yaml", "an alias for the very value it is part of")
                .fix("write the value out");
            self.log.error(at, &Entry::Root, fault);
            return Err(Stop);
        };
        let (node, nodes) = (node.clone(), *nodes);
        self.count(nodes, at)?;
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
            // The key was taken, so this is the way to its map.
            let way = self.way();
            duplicate(self.compat, self.log, &way, &again);
        }
        Ok(())
    }

    /// The way to what comes next.
    fn way(&self) -> String {
        let mut way = String::new();
        for open in &self.open {
            match &open.kind {
                OpenKind::List(items) => {
                    let _ = write!(way, "[{}]", items.len());
                }
                OpenKind::Map {
                    key: Some((Key::Text(key), _)),
                    ..
                } => {
                    if !way.is_empty() {
                        way.push('.');
                    }
                    way.push_str(key);
                }
                OpenKind::Map { .. } => {}
            }
        }
        way
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
                let way = self.way();
                self.log.error(at, &Entry::written(&way), fault);
                // The file is refused; what else is wrong in it can still be said.
                Ok(scalar::resolve(text, Compat::Agt).unwrap_or_else(|_| text.into()))
            }
        }
    }

    fn collection_tag(&mut self, tag: Option<&Tag>, own: &str, at: Position) -> Result<(), Stop> {
        let Some(tag) = tag else { return Ok(()) };
        if self.compat == Compat::Agt && tag.is_yaml_core_schema() && tag.suffix == own {
            return Ok(());
        }
        let way = self.way();
        self.log.error(at, &Entry::written(&way), tag::refused(tag));
        Ok(())
    }
}

fn as_key(node: &Node, merge: bool, compat: Compat, log: &mut Log) -> Key {
    if merge {
        if compat == Compat::Agt {
            return Key::Merge;
        }
        let fault =
            Fault::new("policy.yaml", "`<<` brings in another map").fix("write its entries out");
        log.error(node.at, &Entry::Root, fault);
        return Key::Unusable;
    }
    match &node.kind {
        Kind::Scalar(Value::Text(key)) => Key::Text(key.clone()),
        _ => {
            let fault = Fault::new(
                "policy.yaml",
                format!("a key must be text, found {}", node.describe()),
            )
            .fix("quote the key");
            // Also in AGT's manner: what is dropped might be what a condition is about.
            log.error(node.at, &Entry::Root, fault);
            Key::Unusable
        }
    }
}

fn bring_in(node: Node, at: Position, merged: &mut Vec<Pair>, log: &mut Log) -> Result<(), Stop> {
    let maps = match node.kind {
        Kind::Map(_) => vec![node],
        Kind::List(items) => items,
        Kind::Scalar(_) => Vec::new(),
    };
    let fault = |message| Fault::new("policy.yaml", message).fix("write its entries out");
    if maps.is_empty() {
        log.error(
            at,
            &Entry::Root,
            fault("`<<` needs a map, or a list of maps"),
        );
        return Err(Stop);
    }
    for map in maps {
        let Kind::Map(pairs) = map.kind else {
            log.error(
                at,
                &Entry::Root,
                fault("`<<` needs a map, or a list of maps"),
            );
            return Err(Stop);
        };
        for pair in pairs {
            // Of several maps, the first that has the key counts.
            if !merged.iter().any(|known| known.key == pair.key) {
                merged.push(pair);
            }
        }
    }
    log.warning(at, &Entry::Root, fault("`<<` brings in another map"));
    Ok(())
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar(_) => 0,
        Kind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Kind::Map(pairs) => {
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
