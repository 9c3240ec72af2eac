//! Literal texts that a pattern requires. The engine searches for those of all patterns at once, before
//! it tries any pattern.

use super::ast::{Node, Set};

/// Shorter ones are in nearly every text.
const MIN_LENGTH: usize = 2;
const MAX_CHOICES: usize = 8;

/// One of these is in every text that matches.
pub(super) fn required(node: &Node) -> Option<Vec<String>> {
    let mut finder = Finder::default();
    finder.visit(node);
    finder.flush();
    finder.best.map(|best| best.choices)
}

#[derive(Default)]
struct Finder {
    /// Adjacent literal characters.
    run: String,
    best: Option<Candidate>,
}

struct Candidate {
    choices: Vec<String>,
    shortest: usize,
}

impl Finder {
    fn visit(&mut self, node: &Node) {
        match node {
            // Without width: what is around them is adjacent.
            Node::Empty | Node::At(_) => {}
            Node::Look(look) => {
                if !look.negative {
                    self.offer(required(&look.node));
                }
            }
            Node::Set(set) => self.set(set),
            Node::Concat(nodes) => nodes.iter().for_each(|node| self.visit(node)),
            Node::Group { node, .. } | Node::Atomic(node) => self.visit(node),
            Node::Repeat(repeat) => {
                self.flush();
                if repeat.min > 0 {
                    self.offer(required(&repeat.node));
                }
            }
            Node::Alternation(nodes) => {
                self.flush();
                let all: Option<Vec<Vec<String>>> = nodes.iter().map(required).collect();
                self.offer(all.map(|all| all.concat()));
            }
            Node::Reference { .. } | Node::If { .. } => self.flush(),
        }
    }

    fn set(&mut self, set: &Set) {
        match set.single() {
            Some(c) => self.run.push(c),
            None => self.flush(),
        }
    }

    fn flush(&mut self) {
        let run = std::mem::take(&mut self.run);
        self.offer(Some(vec![run]));
    }

    fn offer(&mut self, choices: Option<Vec<String>>) {
        let Some(choices) = choices else { return };
        let shortest = choices.iter().map(String::len).min().unwrap_or(0);
        if shortest < MIN_LENGTH || choices.len() > MAX_CHOICES {
            return;
        }
        if (self.best.as_ref()).is_none_or(|best| shortest > best.shortest) {
            self.best = Some(Candidate { choices, shortest });
        }
    }
}
