//! From the tree to the steps of the machine.

use std::collections::HashMap;

use super::{CharSet, Program, Step};
use crate::pattern::ast::{At, Node, Repeat, Set, Style};
use crate::pattern::width;

pub(in crate::pattern) fn compile(node: &Node, groups: usize) -> Program {
    let mut compiler = Compiler {
        code: Vec::new(),
        sets: Vec::new(),
        known: HashMap::new(),
        slots: groups * 2,
    };
    compiler.node(node);
    compiler.code.push(Step::Accept);
    Program {
        from_start_only: starts_at_start(node),
        code: compiler.code,
        sets: compiler.sets,
        slots: compiler.slots,
    }
}

fn starts_at_start(node: &Node) -> bool {
    match node {
        Node::At(At::Start) => true,
        Node::Concat(nodes) => nodes.first().is_some_and(starts_at_start),
        Node::Group { node, .. } | Node::Atomic(node) => starts_at_start(node),
        Node::Alternation(nodes) => nodes.iter().all(starts_at_start),
        _ => false,
    }
}

struct Compiler {
    code: Vec<Step>,
    sets: Vec<CharSet>,
    /// By the address of the node: a repetition compiles the same one many times.
    known: HashMap<*const Set, usize>,
    slots: usize,
}

impl Compiler {
    fn node(&mut self, node: &Node) {
        match node {
            Node::Empty => {}
            Node::Set(set) => {
                let set = self.set(set);
                self.code.push(Step::Set(set));
            }
            Node::At(at) => self.code.push(Step::At(*at)),
            Node::Concat(nodes) => nodes.iter().for_each(|node| self.node(node)),
            Node::Alternation(nodes) => self.alternation(nodes),
            Node::Repeat(repeat) => match repeat.style {
                Style::Possessive => self.atomic(|compiler| compiler.repeat(repeat)),
                Style::Greedy | Style::Lazy => self.repeat(repeat),
            },
            Node::Group { index, node } => match index {
                Some(index) => {
                    self.code.push(Step::Save(index * 2));
                    self.node(node);
                    self.code.push(Step::Save(index * 2 + 1));
                }
                None => self.node(node),
            },
            Node::Reference { group, fold } => self.code.push(Step::Reference {
                group: *group,
                fold: *fold,
            }),
            Node::Look(look) => {
                let at = self.reserve();
                self.node(&look.node);
                self.code.push(Step::Accept);
                self.code[at] = Step::Look {
                    behind: look.behind,
                    negative: look.negative,
                    end: self.code.len(),
                };
            }
            Node::Atomic(node) => self.atomic(|compiler| compiler.node(node)),
            Node::If { group, yes, no } => {
                let condition = self.reserve();
                self.node(yes);
                let leave = self.reserve();
                self.code[condition] = Step::IfGroup {
                    group: *group,
                    no: self.code.len(),
                };
                self.node(no);
                self.code[leave] = Step::Jump(self.code.len());
            }
        }
    }

    /// Reserves the index of a step whose target is not known yet.
    fn reserve(&mut self) -> usize {
        self.code.push(Step::Accept);
        self.code.len() - 1
    }

    fn set(&mut self, set: &Set) -> usize {
        *self
            .known
            .entry(std::ptr::from_ref(set))
            .or_insert_with(|| {
                self.sets.push(CharSet::new(set.resolve()));
                self.sets.len() - 1
            })
    }

    fn atomic(&mut self, inside: impl FnOnce(&mut Self)) {
        let at = self.reserve();
        inside(self);
        self.code.push(Step::Accept);
        self.code[at] = Step::Atomic {
            end: self.code.len(),
        };
    }

    fn alternation(&mut self, nodes: &[Node]) {
        let mut leaves = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            if i + 1 == nodes.len() {
                self.node(node);
                break;
            }
            let split = self.reserve();
            self.node(node);
            leaves.push(self.reserve());
            self.code[split] = Step::Split(split + 1, self.code.len());
        }
        for leave in leaves {
            self.code[leave] = Step::Jump(self.code.len());
        }
    }

    fn repeat(&mut self, repeat: &Repeat) {
        let greedy = repeat.style != Style::Lazy;
        if let (Node::Set(set), true) = (&*repeat.node, greedy) {
            let set = self.set(set);
            self.code.push(Step::Run {
                set,
                min: repeat.min,
                max: repeat.max,
            });
            return;
        }
        for _ in 0..repeat.min {
            self.node(&repeat.node);
        }
        match repeat.max {
            Some(max) => {
                let mut splits = Vec::new();
                for _ in repeat.min..max {
                    splits.push(self.reserve());
                    self.node(&repeat.node);
                }
                for split in splits {
                    self.code[split] = self.split(greedy, split + 1, self.code.len());
                }
            }
            None => self.endless(&repeat.node, greedy),
        }
    }

    fn endless(&mut self, node: &Node, greedy: bool) {
        let split = self.reserve();
        let may_be_empty = width::of(node, &[]).min == 0;
        if may_be_empty {
            let slot = self.slots;
            self.slots += 1;
            self.code.push(Step::Save(slot));
            self.node(node);
            let check = self.reserve();
            self.code.push(Step::Jump(split));
            self.code[check] = Step::IfStuck {
                slot,
                exit: self.code.len(),
            };
        } else {
            self.node(node);
            self.code.push(Step::Jump(split));
        }
        self.code[split] = self.split(greedy, split + 1, self.code.len());
    }

    fn split(&self, greedy: bool, inside: usize, outside: usize) -> Step {
        if greedy {
            Step::Split(inside, outside)
        } else {
            Step::Split(outside, inside)
        }
    }
}
