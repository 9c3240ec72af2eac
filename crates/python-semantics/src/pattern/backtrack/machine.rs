//! Going through the steps.

use super::{Program, Step};
use crate::pattern::ast::{At, Fold};
use crate::pattern::{StepLimit, case};
use crate::unicode;

/// What any search may cost, and what each byte of the text adds to it.
const STEPS: u64 = 10_000_000;
const STEPS_PER_BYTE: u64 = 256;

impl Program {
    pub(crate) fn is_match(&self, text: &str) -> Result<bool, StepLimit> {
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
    stack: Vec<Alternative>,
    steps: u64,
}

/// What is left to try, and what to undo before.
enum Alternative {
    Go {
        step: usize,
        at: usize,
    },
    /// A greedy run of characters that can still be shortened, down to `low`.
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
            let next = match self.program.code[step] {
                Step::Accept => {
                    self.forget_alternatives(base);
                    return Ok(Some(at));
                }
                Step::Set(set) => self.next_char(at).and_then(|c| {
                    let set = &self.program.sets[set];
                    set.has(c).then(|| (step + 1, at + c.len_utf8()))
                }),
                Step::At(place) => self.matches_at(place, at).then_some((step + 1, at)),
                Step::Split(first, second) => {
                    self.stack.push(Alternative::Go { step: second, at });
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
                if let Some(Alternative::Restore { slot, value }) = self.stack.pop() {
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
                Alternative::Go { step, at } => return Some((step, at)),
                Alternative::Shrink { step, low, high } => {
                    let last = self.text[low..high].chars().next_back()?;
                    let high = high - last.len_utf8();
                    if high > low {
                        self.stack.push(Alternative::Shrink { step, low, high });
                    }
                    return Some((step, high));
                }
                Alternative::Restore { slot, value } => self.slots[slot] = value,
            }
        }
        None
    }

    fn forget_alternatives(&mut self, base: usize) {
        let mut kept = base;
        for i in base..self.stack.len() {
            if matches!(self.stack[i], Alternative::Restore { .. }) {
                self.stack.swap(kept, i);
                kept += 1;
            }
        }
        self.stack.truncate(kept);
    }

    fn save(&mut self, slot: usize, at: usize) {
        let value = self.slots[slot].replace(at);
        self.stack.push(Alternative::Restore { slot, value });
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
            self.stack.push(Alternative::Shrink {
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

    fn matches_at(&self, place: At, at: usize) -> bool {
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
