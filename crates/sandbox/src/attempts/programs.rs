//! Counts the programs that an execution tried to start: attempts that are equal share a row. Each
//! decision, rule and outcome has its own room, so that no number of attempts of one kind hides one of
//! another kind.

use std::collections::HashMap;
use std::time::Instant;

use brig_audit::{Command, Hash, Times};
use brig_reason::ReasonCode;
use jiff::Timestamp;

use super::tally::{Budget, sum};

/// Codes of programs that were allowed and were not seen to run.
pub(super) const NOT_STARTED: [&str; 2] = [
    ReasonCode::CommandFailed.code(),
    ReasonCode::CommandUnconfirmed.code(),
];
const OBSERVED: &str = ReasonCode::CommandObserved.code();

/// Rows of one program, and programs of one file name. More share a row.
const ALIKE: usize = 16;
/// File names that no rule covers, of one decision, and further rows of the same names.
const NAMES: usize = 2048;
const MORE: usize = 512;
/// The same for each rule.
const NAMES_OF_RULE: usize = 64;
const MORE_OF_RULE: usize = 64;
/// Rows under rules, of one kind. The first of each rule has one in any case.
const UNDER_RULES: usize = 4096;
/// Own records for attempts of one row, and of all rows of a kind; after that, one per second.
const BURST: u32 = 20;
const ALL_BURST: u32 = 500;
/// Bytes of arguments that are kept for the rows of a kind.
const HELD: usize = 1 << 20;

const OTHER_ARGUMENTS: &str = "other attempts of this program";
const OTHER_PATHS: &str = "other paths that end in this name";
const OTHER_PROGRAMS: &str = "other programs";

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Kind {
    Denied,
    Observed,
    Started,
    NotStarted,
}

fn kind(command: &Command) -> Kind {
    match command.code.as_str() {
        _ if !command.allowed => Kind::Denied,
        OBSERVED => Kind::Observed,
        code if NOT_STARTED.contains(&code) => Kind::NotStarted,
        _ => Kind::Started,
    }
}

#[derive(Debug, Default)]
pub(super) struct Programs {
    rows: Vec<Row>,
    places: HashMap<Key, usize>,
    groups: Vec<Group>,
    numbers: HashMap<(bool, String, Option<String>), usize>,
    kinds: HashMap<Kind, KindRows>,
    total: u64,
}

/// One decision, rule and outcome.
#[derive(Debug, Default)]
struct Group {
    /// Programs by file name, and rows by program.
    names: HashMap<String, usize>,
    programs: HashMap<String, usize>,
    more: usize,
}

#[derive(Debug, Default)]
struct KindRows {
    budget: Budget,
    under_rules: usize,
    held: usize,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Key {
    /// Equal attempts.
    Own(usize, Hash),
    OtherArguments(usize, String),
    OtherPaths(usize, String),
    OtherPrograms(usize),
}

/// Lower is more important to a reader.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Rank {
    /// The first of its decision and rule, or what stands for all others.
    Group,
    /// The first of its file name.
    Name,
    /// What stands for further attempts at a program or a file name.
    Shared,
    More,
}

#[derive(Debug)]
struct Row {
    command: Command,
    kind: Kind,
    rank: Rank,
    count: u64,
    /// Which of them have their own records.
    apart: u64,
    first: Timestamp,
    last: Timestamp,
    budget: Budget,
}

impl Programs {
    /// Counts an attempt. Returns whether it needs its own record.
    pub(super) fn attempted(&mut self, command: &Command) -> bool {
        let (at, now) = (Timestamp::now(), Instant::now());
        let (place, new) = self.place(command, at);
        self.total = sum(self.total, 1);
        let Some(row) = self.rows.get_mut(place) else {
            return true;
        };
        row.count = sum(row.count, 1);
        row.last = at;
        let of_kind = self.kinds.entry(row.kind).or_default();
        let apart = row.budget.take(BURST, now) && (of_kind.budget.take(ALL_BURST, now) || new);
        row.apart += u64::from(apart);
        apart
    }

    /// The row of an attempt, and whether it is new.
    fn place(&mut self, command: &Command, at: Timestamp) -> (usize, bool) {
        let identity = (command.allowed, command.code.clone(), command.rule.clone());
        let next = self.groups.len();
        let number = *self.numbers.entry(identity).or_insert(next);
        if number == next {
            self.groups.push(Group::default());
        }
        let own = Key::Own(number, digest(command));
        if let Some(place) = self.places.get(&own) {
            return (*place, false);
        }
        let kind = kind(command);
        let (key, rank) = self.choose(number, own, kind, command);
        if let Some(place) = self.places.get(&key) {
            return (*place, false);
        }
        let of_kind = self.kinds.entry(kind).or_default();
        let held: usize = command.arguments.iter().map(String::len).sum();
        let mut shown = standing_for(&key, command);
        if rank == Rank::Group || of_kind.held + held <= HELD {
            of_kind.held += held;
        } else if !shown.arguments.is_empty() {
            shown.arguments = vec!["…".into()];
        }
        let place = self.rows.len();
        self.places.insert(key, place);
        self.rows.push(Row {
            command: shown,
            kind,
            rank,
            count: 0,
            apart: 0,
            first: at,
            last: at,
            budget: Budget::default(),
        });
        (place, true)
    }

    /// Its own row if there is room, or the one that it shares.
    fn choose(&mut self, number: usize, own: Key, kind: Kind, command: &Command) -> (Key, Rank) {
        let of_kind = self.kinds.entry(kind).or_default();
        let group = &mut self.groups[number];
        let under_rule = command.rule.is_some();
        let (names, more) = match under_rule {
            true => (NAMES_OF_RULE, MORE_OF_RULE),
            false => (NAMES, MORE),
        };
        let name = file_name(&command.program).to_owned();
        let first = group.names.is_empty();
        let room = !under_rule || of_kind.under_rules < UNDER_RULES;
        let alike = group.programs.get(&command.program).copied();
        let paths = group.names.get(&name).copied();
        let rank = match (paths, alike) {
            _ if first => Rank::Group,
            (None, _) if room && group.names.len() < names => Rank::Name,
            (None, _) => return (Key::OtherPrograms(number), Rank::Group),
            (Some(_), Some(..ALIKE)) | (Some(..ALIKE), None) if room && group.more < more => {
                group.more += 1;
                Rank::More
            }
            (Some(_), Some(_)) => {
                let program = command.program.clone();
                return (Key::OtherArguments(number, program), Rank::Shared);
            }
            (Some(_), None) => return (Key::OtherPaths(number, name), Rank::Shared),
        };
        of_kind.under_rules += usize::from(under_rule && !first);
        *group.programs.entry(command.program.clone()).or_default() += 1;
        *group.names.entry(name).or_default() += usize::from(alike.is_none());
        (own, rank)
    }

    /// All rows with attempts that have no record of their own.
    pub(super) fn unrecorded_totals(&self) -> Vec<Command> {
        let rows = self.rows.iter();
        let rows = rows.filter(|row| row.count != row.apart || row.command.detail.is_some());
        rows.map(Row::total).collect()
    }

    /// The most important rows, up to the given number allowed and as many denied, and how many attempts
    /// are in none of them.
    pub(super) fn listed(&self, most: usize) -> (Vec<Command>, u64) {
        let mut chosen: Vec<usize> = Vec::new();
        for allowed in [true, false] {
            let all = 0..self.rows.len();
            let mut places: Vec<usize> = all
                .filter(|place| self.rows[*place].command.allowed == allowed)
                .collect();
            if places.len() > most {
                places.sort_by_key(|place| (self.rows[*place].rank, self.rows[*place].kind));
                places.truncate(most);
            }
            chosen.extend(places);
        }
        chosen.sort_unstable();
        let listed = chosen.iter().map(|at| self.rows[*at].total()).collect();
        let counted: u64 = chosen.iter().map(|at| self.rows[*at].count).sum();
        (listed, self.total.saturating_sub(counted))
    }
}

impl Row {
    fn total(&self) -> Command {
        Command {
            times: Some(Times {
                count: self.count,
                first: self.first,
                last: self.last,
            }),
            ..self.command.clone()
        }
    }
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Of all that its record says but the group, with the length of each part.
fn digest(command: &Command) -> Hash {
    let optional = [&command.path, &command.parent, &command.caller];
    let optional = optional.map(|text| text.as_deref());
    let all = std::iter::once(Some(command.program.as_str()))
        .chain(optional)
        .chain(command.arguments.iter().map(|text| Some(text.as_str())));
    let mut bytes = Vec::new();
    for text in all {
        let length = text.map_or(u64::MAX, |text| text.len() as u64);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
    }
    Hash::of(&bytes)
}

/// What a row shows.
fn standing_for(key: &Key, command: &Command) -> Command {
    let (program, detail) = match key {
        Key::Own(..) => return command.clone(),
        Key::OtherArguments(_, program) => (program.clone(), OTHER_ARGUMENTS),
        Key::OtherPaths(_, name) => (name.clone(), OTHER_PATHS),
        Key::OtherPrograms(_) => (format!("({OTHER_PROGRAMS})"), OTHER_PROGRAMS),
    };
    Command {
        allowed: command.allowed,
        code: command.code.clone(),
        rule: command.rule.clone(),
        program,
        detail: Some(detail.into()),
        ..Command::default()
    }
}

#[cfg(test)]
#[path = "programs_tests.rs"]
mod tests;
