//! What is remembered of the processes of one execution.

use std::collections::HashMap;

use super::judge::Verdict;
use brig_caller::{Asked, Caller};

/// A program can have many processes; more than this are not remembered at once.
const REMEMBERED: usize = 4096;
/// Folders of one search for a program.
const FOLDERS: usize = 64;
/// How far up the tree a line of code is looked for.
const GENERATIONS: usize = 8;

#[derive(Debug, Default)]
pub struct Book {
    /// Lines of code that an interpreter told of, by process.
    callers: HashMap<u32, String>,
    /// Threads whose stand-in is about to start, and was told of already.
    expected: HashMap<u32, String>,
    /// Searches through the folders of `PATH` that are under way.
    searches: HashMap<u32, Search>,
}

#[derive(Debug)]
struct Search {
    programs: Vec<String>,
    arguments: Vec<String>,
}

fn remember<T>(map: &mut HashMap<u32, T>, key: u32, value: T) {
    if map.len() >= REMEMBERED {
        map.clear();
    }
    map.insert(key, value);
}

impl Book {
    pub fn note_caller(&mut self, caller: &Caller, line: Option<&String>) {
        if let (Some((process, _)), Some(line)) = (Caller::family(caller.thread()), line) {
            remember(&mut self.callers, process, line.clone());
        }
    }

    /// The line of code that a process goes back to.
    pub fn caller_of(&mut self, caller: &Caller) -> Option<String> {
        if self.callers.is_empty() {
            return None;
        }
        let (own, mut above) = Caller::family(caller.thread())?;
        let mut found = self.callers.get(&own).cloned();
        for _ in 0..GENERATIONS {
            if found.is_some() || above == 0 {
                break;
            }
            found = self.callers.get(&above).cloned();
            above = Caller::family(above)?.1;
        }
        // Its children may outlive it.
        if let Some(line) = &found {
            remember(&mut self.callers, own, line.clone());
        }
        found
    }

    pub fn expect(&mut self, thread: u32, asked: &Asked) {
        remember(&mut self.expected, thread, asked.program.clone());
    }

    pub fn was_expected(&mut self, thread: u32) -> bool {
        self.expected.remove(&thread).is_some()
    }

    /// Whether this is the same search in the next folder. One that begins anew is another.
    pub fn is_same_search(&mut self, thread: u32, asked: &Asked, verdict: &Verdict) -> bool {
        if verdict.ruling.allowed() || verdict.stands_in {
            self.searches.remove(&thread);
            return false;
        }
        let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
        if let Some(seen) = self.searches.get_mut(&thread) {
            let programs = &mut seen.programs;
            let mut first = programs.iter().take(1);
            let same = first.any(|first| name(first) == name(&asked.program))
                && seen.arguments == asked.arguments;
            if same && programs.len() < FOLDERS && !programs.contains(&asked.program) {
                programs.push(asked.program.clone());
                return true;
            }
        }
        let search = Search {
            programs: vec![asked.program.clone()],
            arguments: asked.arguments.clone(),
        };
        remember(&mut self.searches, thread, search);
        false
    }
}
