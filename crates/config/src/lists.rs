//! Changes of the two lists of hosts.

use brig_hosts::Rule;

use crate::edit::{self, NewEntry};
use crate::user::{ALLOWLIST, BLOCKLIST, UserConfig};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Allow,
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Add,
    Remove,
}

/// What became of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Added, or removed.
    pub done: Vec<Rule>,
    /// Present already, or absent already. Each once.
    pub already: Vec<Rule>,
}

impl List {
    pub(crate) fn key(self) -> &'static str {
        match self {
            List::Allow => ALLOWLIST,
            List::Block => BLOCKLIST,
        }
    }

    pub(crate) fn of(self, config: &UserConfig) -> &[Rule] {
        match self {
            List::Allow => config.allow(),
            List::Block => config.block(),
        }
    }
}

/// What there is to do, of what was asked.
pub(crate) fn plan(own: &[Rule], change: Change, rules: &[Rule]) -> Changed {
    let mut changed = Changed::default();
    for rule in rules {
        let list = match own.contains(rule) == (change == Change::Add) {
            true => &mut changed.already,
            false => &mut changed.done,
        };
        if !list.contains(rule) {
            list.push(rule.clone());
        }
    }
    changed
}

/// The list as it should be.
pub(crate) fn wanted(own: &[Rule], change: Change, changed: &Changed) -> Vec<Rule> {
    match change {
        Change::Add => own.iter().chain(&changed.done).cloned().collect(),
        Change::Remove => {
            let left = own.iter().filter(|rule| !changed.done.contains(rule));
            left.cloned().collect()
        }
    }
}

pub(crate) fn edited(
    text: &str,
    list: List,
    own: &[Rule],
    change: Change,
    changed: &Changed,
) -> Option<String> {
    match change {
        Change::Add => {
            let entries = changed
                .done
                .iter()
                .map(|rule| NewEntry::item(&rule.to_string()));
            edit::add(text, list.key(), &entries.collect::<Vec<_>>())
        }
        Change::Remove => {
            let places = own.iter().enumerate();
            let places = places.filter(|(_, rule)| changed.done.contains(rule));
            let places: Vec<usize> = places.map(|(place, _)| place).collect();
            edit::remove(text, list.key(), &places)
        }
    }
}
