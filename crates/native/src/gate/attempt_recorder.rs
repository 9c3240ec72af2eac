//! What is remembered about the processes of one execution, so that each attempt to start a program
//! is recorded once and with the line of code that made it.

use std::collections::HashMap;
use std::path::PathBuf;

use super::decider::Decision;
use brig_caller::{Caller, RequestedProgram, ResolvedPath};

/// A hostile program can have any number of processes. Beyond this, all are forgotten.
const REMEMBERED: usize = 4096;
/// Directories of one search through `PATH`.
const MAX_SEARCH: usize = 64;
/// How many ancestors are searched for a line of code.
const GENERATIONS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct AttemptRecorder {
    /// Lines of code that an interpreter has reported, by process.
    callers: HashMap<u32, String>,
    /// Threads whose stand-in is about to start, and was recorded already.
    expected: HashMap<u32, String>,
    /// Searches through `PATH` that have begun.
    searches: HashMap<u32, Search>,
    /// The last recorded request.
    last: Option<LastRequest>,
}

#[derive(Debug)]
struct LastRequest {
    thread: u32,
    program: String,
    arguments: Vec<String>,
    /// The answer did not reach the caller, because a signal interrupted the call. The kernel
    /// restarts it, so the same request will come again.
    answer_lost: bool,
}

#[derive(Debug)]
struct Search {
    programs: Vec<String>,
    arguments: Vec<String>,
    /// The file that it will find, as recorded.
    resolved_file: Option<PathBuf>,
}

fn remember<T>(map: &mut HashMap<u32, T>, key: u32, value: T) {
    if map.len() >= REMEMBERED {
        map.clear();
    }
    map.insert(key, value);
}

impl AttemptRecorder {
    pub(super) fn note_caller(&mut self, caller: &Caller, line: Option<&String>) {
        if let (Some((process, _)), Some(line)) =
            (Caller::process_and_parent(caller.thread()), line)
        {
            remember(&mut self.callers, process, line.clone());
        }
    }

    /// The line of code that a process was started by, directly or through its ancestors.
    pub(super) fn caller_of(&mut self, caller: &Caller) -> Option<String> {
        if self.callers.is_empty() {
            return None;
        }
        let (own, mut above) = Caller::process_and_parent(caller.thread())?;
        let mut found = self.callers.get(&own).cloned();
        for _ in 0..GENERATIONS {
            if found.is_some() || above == 0 {
                break;
            }
            found = self.callers.get(&above).cloned();
            above = Caller::process_and_parent(above)?.1;
        }
        // The process that reported it may exit before this one.
        if let Some(line) = &found {
            remember(&mut self.callers, own, line.clone());
        }
        found
    }

    pub(super) fn expect_stand_in(&mut self, thread: u32, requested: &RequestedProgram) {
        remember(&mut self.expected, thread, requested.program.clone());
    }

    pub(super) fn answer_lost(&mut self, thread: u32) {
        if let Some(last) = self.last.as_mut().filter(|last| last.thread == thread) {
            last.answer_lost = true;
        }
    }

    /// Whether this request was recorded just now, and is repeated because its answer was lost.
    pub(super) fn was_recorded(&mut self, thread: u32, requested: &RequestedProgram) -> bool {
        let last = self.last.take();
        let recorded = last.is_some_and(|last| {
            last.answer_lost
                && last.thread == thread
                && last.program == requested.program
                && last.arguments == requested.arguments
        });
        self.last = Some(LastRequest {
            thread,
            program: requested.program.clone(),
            arguments: requested.arguments.clone(),
            answer_lost: false,
        });
        recorded
    }

    pub(super) fn take_expected(&mut self, thread: u32) -> bool {
        self.expected.remove(&thread).is_some()
    }

    /// Whether this request continues a search through `PATH` in the next directory: the shell or C
    /// library tries one path after another. A repeated path begins a new search. So does a file that
    /// was not recorded, because a search only passes over missing files.
    pub(super) fn is_same_search(
        &mut self,
        thread: u32,
        requested: &RequestedProgram,
        decision: &Decision,
        resolved_file: impl FnOnce() -> Option<PathBuf>,
    ) -> bool {
        if decision.effect.allowed() || decision.is_stand_in {
            self.searches.remove(&thread);
            return false;
        }
        let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
        if let Some(seen) = self.searches.get_mut(&thread) {
            let programs = &mut seen.programs;
            let mut first = programs.iter().take(1);
            let same = first.any(|first| name(first) == name(&requested.program))
                && seen.arguments == requested.arguments;
            let nothing_new = match &requested.resolved {
                ResolvedPath::Missing(_) => true,
                ResolvedPath::File(path) => seen.resolved_file.as_ref() == Some(path),
                ResolvedPath::Unknown => false,
            };
            if same
                && nothing_new
                && programs.len() < MAX_SEARCH
                && !programs.contains(&requested.program)
            {
                programs.push(requested.program.clone());
                return true;
            }
        }
        let search = Search {
            programs: vec![requested.program.clone()],
            arguments: requested.arguments.clone(),
            resolved_file: resolved_file(),
        };
        remember(&mut self.searches, thread, search);
        false
    }
}

#[cfg(test)]
mod tests {
    use brig_linux::notify::Answer;
    use rustix::io::Errno;

    use super::super::decider::Effect;
    use super::*;

    fn requested(program: &str, resolved: ResolvedPath, arguments: &[&str]) -> RequestedProgram {
        RequestedProgram {
            program: program.into(),
            resolved,
            file: None,
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    fn missing(program: &str) -> RequestedProgram {
        requested(
            program,
            ResolvedPath::Missing(Errno::NOENT),
            &["curl", "-s"],
        )
    }

    fn found(program: &str) -> RequestedProgram {
        requested(program, ResolvedPath::File(program.into()), &["curl", "-s"])
    }

    fn decision(effect: Effect) -> Decision {
        Decision {
            effect,
            rule: None,
            answer: Answer::Continue,
            is_stand_in: false,
        }
    }

    /// Whether a denied attempt of thread 1 belongs to the one before.
    fn same(recorder: &mut AttemptRecorder, requested: &RequestedProgram) -> bool {
        let resolved_file = || Some("/b/curl".into());
        recorder.is_same_search(1, requested, &decision(Effect::Denied), resolved_file)
    }

    #[test]
    fn a_search_is_one_attempt_and_the_next_search_another() {
        let mut recorder = AttemptRecorder::default();
        for round in 0..3 {
            assert!(!same(&mut recorder, &missing("/a/curl")), "{round}");
            assert!(same(&mut recorder, &found("/b/curl")), "{round}");
            assert!(same(&mut recorder, &missing("/c/curl")), "{round}");
        }
    }

    #[test]
    fn what_only_looks_like_a_search_is_an_attempt_of_its_own() {
        let others = [
            ("another program", missing("/c/wget")),
            ("a file that was not told of", found("/c/curl")),
            (
                "a file that can't be looked at",
                requested("/c/curl", ResolvedPath::Unknown, &["curl", "-s"]),
            ),
            (
                "other arguments",
                requested(
                    "/c/curl",
                    ResolvedPath::Missing(Errno::NOENT),
                    &["curl", "-v"],
                ),
            ),
        ];
        for (what, other) in others {
            let mut recorder = AttemptRecorder::default();
            assert!(!same(&mut recorder, &missing("/a/curl")));
            assert!(same(&mut recorder, &missing("/b/curl")), "control");
            assert!(!same(&mut recorder, &other), "{what}");
        }
        // Another thread, and one that has started something since.
        let mut recorder = AttemptRecorder::default();
        assert!(!same(&mut recorder, &missing("/a/curl")));
        let next = missing("/b/curl");
        assert!(!recorder.is_same_search(2, &next, &decision(Effect::Denied), || None));
        assert!(!recorder.is_same_search(1, &next, &decision(Effect::Allowed), || None));
        assert!(!same(&mut recorder, &next));
    }

    #[test]
    fn a_search_without_end_is_many_attempts() {
        let mut recorder = AttemptRecorder::default();
        let folders = (0..4 * MAX_SEARCH).map(|number| missing(&format!("/{number}/curl")));
        let told = folders
            .filter(|requested| !same(&mut recorder, requested))
            .count();
        assert_eq!(told, 4);
    }

    #[test]
    fn an_attempt_counts_each_time_unless_its_answer_was_lost() {
        let (one, other) = (found("/b/curl"), found("/b/wget"));
        let mut recorder = AttemptRecorder::default();
        for _ in 0..3 {
            assert!(!recorder.was_recorded(1, &one));
        }
        recorder.answer_lost(1);
        assert!(recorder.was_recorded(1, &one), "it asks again by itself");
        assert!(!recorder.was_recorded(1, &one), "once");
        // A lost answer hides neither another attempt nor that of another thread.
        for (thread, next) in [(1, &other), (2, &one)] {
            assert!(!recorder.was_recorded(1, &one));
            recorder.answer_lost(1);
            assert!(!recorder.was_recorded(thread, next));
        }
        assert!(!recorder.was_recorded(1, &one));
        recorder.answer_lost(2);
        assert!(
            !recorder.was_recorded(1, &one),
            "the answer of another was lost"
        );
    }
}
