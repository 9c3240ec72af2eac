//! The positions of values in a YAML text, in bytes.

use std::ops::Range;

use saphyr_parser::{Event, Parser, Span};

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub at: Range<usize>,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar(String),
    List {
        flow: bool,
        items: Vec<Spot>,
    },
    /// Keys and values in turn.
    Map {
        flow: bool,
        items: Vec<Spot>,
    },
}

impl Spot {
    /// The end of what is written of it.
    pub(super) fn end(&self) -> usize {
        match &self.kind {
            Kind::List { flow: false, items } | Kind::Map { flow: false, items } => {
                items.last().map_or(self.at.end, Spot::end)
            }
            _ => self.at.end,
        }
    }

    /// The key and the value of a pair.
    pub(super) fn pair(&self, name: &str) -> Option<(&Spot, &Spot)> {
        let Kind::Map { items, .. } = &self.kind else {
            return None;
        };
        items.chunks_exact(2).find_map(|pair| {
            let [key, value] = pair else { return None };
            matches!(&key.kind, Kind::Scalar(text) if text == name).then_some((key, value))
        })
    }
}

/// The value of a text. Nothing if there is none, or if it contains an alias.
pub(super) fn shape(text: &str) -> Option<Spot> {
    let mut bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    bytes.push(text.len());
    let place = |span: Span| {
        let byte = |index: usize| bytes.get(index).copied().unwrap_or(text.len());
        byte(span.start.index())..byte(span.end.index())
    };
    let mut open: Vec<(Range<usize>, bool, Vec<Spot>)> = Vec::new();
    let mut root = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        let at = place(span);
        let done = match event {
            Event::Scalar(value, _, 0, None) => Spot {
                at,
                kind: Kind::Scalar(value.into_owned()),
            },
            Event::SequenceStart(0, None) | Event::MappingStart(0, None) => {
                let flow = text[at.start..].starts_with(['[', '{']);
                open.push((at, flow, Vec::new()));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (start, flow, items) = open.pop()?;
                // What the parser calls the end is behind the comment that follows.
                let end = if flow { at.start + 1 } else { at.end };
                let at = start.start..end;
                let kind = match event {
                    Event::SequenceEnd => Kind::List { flow, items },
                    _ => Kind::Map { flow, items },
                };
                Spot { at, kind }
            }
            Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::MappingStart(..)
            | Event::Alias(_) => return None,
            _ => continue,
        };
        match open.last_mut() {
            Some((_, _, items)) => items.push(done),
            None => root = Some(done),
        }
    }
    root
}
