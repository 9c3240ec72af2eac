//! How many characters a pattern takes, and how large it is when every repetition is written out.

use super::ast::Node;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    pub min: u64,
    pub max: u64,
}

const NONE: Width = Width { min: 0, max: 0 };

pub(super) fn of(node: &Node, groups: &[Option<Width>]) -> Width {
    match node {
        Node::Empty | Node::At(_) | Node::Look(_) => NONE,
        Node::Set(_) => Width { min: 1, max: 1 },
        Node::Concat(nodes) => nodes.iter().fold(NONE, |sum, node| {
            let width = of(node, groups);
            Width {
                min: sum.min.saturating_add(width.min),
                max: sum.max.saturating_add(width.max),
            }
        }),
        Node::Alternation(nodes) => either(nodes.iter().map(|node| of(node, groups))),
        Node::Repeat(repeat) => {
            let width = of(&repeat.node, groups);
            Width {
                min: width.min.saturating_mul(u64::from(repeat.min)),
                max: match repeat.max {
                    Some(max) => width.max.saturating_mul(u64::from(max)),
                    None if width.max == 0 => 0,
                    None => u64::MAX,
                },
            }
        }
        Node::Group { node, .. } | Node::Atomic(node) => of(node, groups),
        Node::Reference { group, .. } => groups.get(*group).copied().flatten().unwrap_or(NONE),
        Node::If { yes, no, .. } => either([of(yes, groups), of(no, groups)].into_iter()),
    }
}

fn either(widths: impl Iterator<Item = Width>) -> Width {
    widths
        .reduce(|a, b| Width {
            min: a.min.min(b.min),
            max: a.max.max(b.max),
        })
        .unwrap_or(NONE)
}

pub(super) fn size(node: &Node) -> u64 {
    let all = |nodes: &[Node]| nodes.iter().map(size).fold(1, u64::saturating_add);
    match node {
        Node::Empty | Node::Set(_) | Node::At(_) | Node::Reference { .. } => 1,
        Node::Concat(nodes) | Node::Alternation(nodes) => all(nodes),
        Node::Repeat(repeat) => {
            let times = u64::from(repeat.max.unwrap_or(repeat.min)).max(1);
            size(&repeat.node).saturating_mul(times).saturating_add(2)
        }
        Node::Group { node, .. } | Node::Atomic(node) => size(node).saturating_add(2),
        Node::Look(look) => size(&look.node).saturating_add(2),
        Node::If { yes, no, .. } => size(yes).saturating_add(size(no)).saturating_add(2),
    }
}
