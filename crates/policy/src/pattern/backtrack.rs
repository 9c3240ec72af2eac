//! The patterns that need to look around or back. A machine with a stack tries one way after the
//! other, counts its steps and gives up when there are too many.

use std::collections::HashMap;

use regex_syntax::hir::ClassUnicode;

use super::StepLimit;
use super::ast::{At, Fold, Node, Repeat, Set, Style};
use super::case;
use super::width;
use crate::unicode;

/// What any search may cost, and what each byte of the text adds to it.
const STEPS: u64 = 10_000_000;
const STEPS_PER_BYTE: u64 = 256;

#[derive(Debug)]
pub(super) struct Program {
    code: Vec<Step>,
    sets: Vec<CharSet>,
    /// Two for each group, then one for each loop that may match nothing.
    slots: usize,
    from_start_only: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Set(usize),
    At(At),
    /// Tries the first, then the second.
    Split(usize, usize),
    Jump(usize),
    Save(usize),
    /// As many characters of the set as there are, up to a number, giving them back one by one.
    Run {
        set: usize,
        min: u32,
        max: Option<u32>,
    },
    /// Leaves the loop if its last turn matched nothing.
    IfStuck {
        slot: usize,
        exit: usize,
    },
    Reference {
        group: usize,
        fold: Fold,
    },
    /// The code up to `end` decides alone, without being asked again.
    Look {
        behind: Option<usize>,
        negative: bool,
        end: usize,
    },
    Atomic {
        end: usize,
    },
    IfGroup {
        group: usize,
        no: usize,
    },
    Accept,
}

#[derive(Debug)]
struct CharSet {
    class: ClassUnicode,
    ascii: [bool; 128],
}

impl CharSet {
    fn new(class: ClassUnicode) -> Self {
        let mut ascii = [false; 128];
        for (code, found) in (0_u8..).zip(ascii.iter_mut()) {
            *found = unicode::contains(&class, char::from(code));
        }
        Self { class, ascii }
    }

    fn has(&self, c: char) -> bool {
        match self.ascii.get(c as usize) {
            Some(found) => *found,
            None => unicode::contains(&self.class, c),
        }
    }
}

pub(super) fn compile(node: &Node, groups: usize) -> Program {
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
                let at = self.place();
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
                let condition = self.place();
                self.node(yes);
                let leave = self.place();
                self.code[condition] = Step::IfGroup {
                    group: *group,
                    no: self.code.len(),
                };
                self.node(no);
                self.code[leave] = Step::Jump(self.code.len());
            }
        }
    }

    /// Keeps a place for a step whose target is not known yet.
    fn place(&mut self) -> usize {
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
        let at = self.place();
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
            let split = self.place();
            self.node(node);
            leaves.push(self.place());
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
                    splits.push(self.place());
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
        let split = self.place();
        let may_be_empty = width::of(node, &[]).min == 0;
        if may_be_empty {
            let slot = self.slots;
            self.slots += 1;
            self.code.push(Step::Save(slot));
            self.node(node);
            let check = self.place();
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

impl Program {
    pub fn is_match(&self, text: &str) -> Result<bool, StepLimit> {
        let steps = STEPS + STEPS_PER_BYTE.saturating_mul(text.len() as u64);
        let mut machine = Machine {
            program: self,
            text,
            slots: vec![None; self.slots],
            stack: Vec::new(),
            steps,
        };
        let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        for start in starts {
            if machine.run(0, start)?.is_some() {
                return Ok(true);
            }
            if self.from_start_only {
                break;
            }
        }
        Ok(false)
    }
}

struct Machine<'a> {
    program: &'a Program,
    text: &'a str,
    slots: Vec<Option<usize>>,
    stack: Vec<Way>,
    steps: u64,
}

/// What is left to try, and what to undo before it is tried.
enum Way {
    Go {
        step: usize,
        at: usize,
    },
    /// A run of characters that can still be given back, down to `low`.
    Shrink {
        step: usize,
        low: usize,
        high: usize,
    },
    Restore {
        slot: usize,
        value: Option<usize>,
    },
}

impl Machine<'_> {
    /// The end of a match that begins here. Afterwards nothing is left on the stack but what
    /// undoes the groups that were set.
    fn run(&mut self, step: usize, at: usize) -> Result<Option<usize>, StepLimit> {
        let base = self.stack.len();
        let (mut step, mut at) = (step, at);
        loop {
            self.count(1)?;
            let next = match self.program.code[step].clone() {
                Step::Accept => {
                    self.forget_ways(base);
                    return Ok(Some(at));
                }
                Step::Set(set) => self.next_char(at).and_then(|c| {
                    let set = &self.program.sets[set];
                    set.has(c).then(|| (step + 1, at + c.len_utf8()))
                }),
                Step::At(place) => self.holds(place, at).then_some((step + 1, at)),
                Step::Split(first, second) => {
                    self.stack.push(Way::Go { step: second, at });
                    Some((first, at))
                }
                Step::Jump(target) => Some((target, at)),
                Step::Save(slot) => {
                    self.save(slot, at);
                    Some((step + 1, at))
                }
                Step::Run { set, min, max } => self.all_of(step, set, min, max, at)?,
                Step::IfStuck { slot, exit } => {
                    let stuck = self.slots[slot] == Some(at);
                    Some((if stuck { exit } else { step + 1 }, at))
                }
                Step::Reference { group, fold } => {
                    self.refer(group, fold, at)?.map(|at| (step + 1, at))
                }
                Step::Look {
                    behind,
                    negative,
                    end,
                } => {
                    let found = match behind {
                        Some(width) => match self.back(at, width) {
                            Some(start) => self.aside(step + 1, start, !negative)?,
                            None => None,
                        },
                        None => self.aside(step + 1, at, !negative)?,
                    };
                    (found.is_some() != negative).then_some((end, at))
                }
                Step::Atomic { end } => self.aside(step + 1, at, true)?.map(|at| (end, at)),
                Step::IfGroup { group, no } => {
                    let target = if self.group(group).is_some() {
                        step + 1
                    } else {
                        no
                    };
                    Some((target, at))
                }
            };
            match next {
                Some(next) => (step, at) = next,
                None => match self.backtrack(base) {
                    Some(next) => (step, at) = next,
                    None => return Ok(None),
                },
            }
        }
    }

    /// A match of its own. Without `keep`, the groups it sets are forgotten.
    fn aside(&mut self, step: usize, at: usize, keep: bool) -> Result<Option<usize>, StepLimit> {
        let base = self.stack.len();
        let found = self.run(step, at)?;
        if !keep {
            while self.stack.len() > base {
                if let Some(Way::Restore { slot, value }) = self.stack.pop() {
                    self.slots[slot] = value;
                }
            }
        }
        Ok(found)
    }

    fn count(&mut self, steps: u64) -> Result<(), StepLimit> {
        self.steps = self.steps.checked_sub(steps).ok_or(StepLimit)?;
        Ok(())
    }

    fn backtrack(&mut self, base: usize) -> Option<(usize, usize)> {
        while self.stack.len() > base {
            match self.stack.pop()? {
                Way::Go { step, at } => return Some((step, at)),
                Way::Shrink { step, low, high } => {
                    let last = self.text[low..high].chars().next_back()?;
                    let high = high - last.len_utf8();
                    if high > low {
                        self.stack.push(Way::Shrink { step, low, high });
                    }
                    return Some((step, high));
                }
                Way::Restore { slot, value } => self.slots[slot] = value,
            }
        }
        None
    }

    fn forget_ways(&mut self, base: usize) {
        let mut kept = base;
        for i in base..self.stack.len() {
            if matches!(self.stack[i], Way::Restore { .. }) {
                self.stack.swap(kept, i);
                kept += 1;
            }
        }
        self.stack.truncate(kept);
    }

    fn save(&mut self, slot: usize, at: usize) {
        let value = self.slots[slot].replace(at);
        self.stack.push(Way::Restore { slot, value });
    }

    fn all_of(
        &mut self,
        step: usize,
        set: usize,
        min: u32,
        max: Option<u32>,
        start: usize,
    ) -> Result<Option<(usize, usize)>, StepLimit> {
        let set = &self.program.sets[set];
        let (mut at, mut low, mut taken) = (start, start, 0);
        for c in self.text[start..].chars() {
            if max == Some(taken) || !set.has(c) {
                break;
            }
            at += c.len_utf8();
            taken += 1;
            if taken == min {
                low = at;
            }
        }
        self.count(u64::from(taken))?;
        if taken < min {
            return Ok(None);
        }
        if at > low {
            self.stack.push(Way::Shrink {
                step: step + 1,
                low,
                high: at,
            });
        }
        Ok(Some((step + 1, at)))
    }

    fn group(&self, group: usize) -> Option<&str> {
        let (start, end) = (self.slots[group * 2]?, self.slots[group * 2 + 1]?);
        // While a group is read again, its start is newer than its end.
        self.text.get(start..end)
    }

    fn refer(&mut self, group: usize, fold: Fold, at: usize) -> Result<Option<usize>, StepLimit> {
        let Some(wanted) = self.group(group) else {
            return Ok(None);
        };
        let length = wanted.len() as u64;
        let rest = &self.text[at..];
        let end = match fold {
            Fold::None => rest.starts_with(wanted).then(|| at + wanted.len()),
            Fold::Ascii | Fold::Unicode => {
                let same = |a: char, b: char| match fold {
                    Fold::Ascii => a.eq_ignore_ascii_case(&b),
                    _ => case::lower(a) == case::lower(b),
                };
                let mut chars = rest.chars();
                let all = wanted
                    .chars()
                    .all(|a| chars.next().is_some_and(|b| same(a, b)));
                all.then(|| self.text.len() - chars.as_str().len())
            }
        };
        self.count(length)?;
        Ok(end)
    }

    fn next_char(&self, at: usize) -> Option<char> {
        self.text[at..].chars().next()
    }

    fn back(&mut self, at: usize, width: usize) -> Option<usize> {
        if width == 0 {
            return Some(at);
        }
        let (start, _) = self.text[..at].char_indices().rev().nth(width - 1)?;
        Some(start)
    }

    fn holds(&self, place: At, at: usize) -> bool {
        let (before, after) = self.text.split_at(at);
        match place {
            At::Start => before.is_empty(),
            At::LineStart => before.is_empty() || before.ends_with('\n'),
            At::End => after.is_empty(),
            At::EndOrLastNewline => after.is_empty() || after == "\n",
            At::LineEnd => after.is_empty() || after.starts_with('\n'),
            At::Word { ascii, negated } => {
                let word = |c: char| match (c.is_ascii(), ascii) {
                    (true, _) => c.is_ascii_alphanumeric() || c == '_',
                    (false, true) => false,
                    (false, false) => unicode::contains(&unicode::WORD, c),
                };
                let left = before.chars().next_back().is_some_and(word);
                let right = after.chars().next().is_some_and(word);
                // In an empty text, there is neither a boundary nor the absence of one.
                !self.text.is_empty() && (left != right) != negated
            }
        }
    }
}
