//! One operation under every fault, and the judgement.

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::calls::Does;
use super::kinds::{Fault, Kind};
use super::tracer::{self, Traced};
use super::world::{View, World};

pub(super) struct Operation {
    pub words: &'static [&'static str],
    /// On record if it changed anything.
    pub starts_with: &'static str,
    /// On record if it was acknowledged; and if it changed nothing, then with its failure.
    pub ends_with: &'static str,
    /// What was killed before, when it was about to write this file.
    pub killed_before: Option<(&'static [&'static str], &'static str)>,
}

/// At so many calls of each kind, or at all of them.
pub(super) fn attack(operation: &Operation, some: Option<usize>) {
    let world = World::new(operation.words[0] == "prune");
    if let Some((words, file)) = operation.killed_before {
        interrupt(&world, words, file);
    }
    let before = world.view();
    world.reset();
    let mut seed = seed();
    println!("BRIG_TEST_SEED={seed}");
    let run = |fault| {
        let command = world.command(operation.words.iter().copied());
        tracer::run(&command, &world.place(), fault)
    };
    // What it does where nothing fails.
    let whole = run(None);
    assert!(whole.output.status.success(), "{:#?}", whole.output);
    let after = world.view();
    world.reset();

    let (mut tried, mut failed) = (0, 0);
    let mut problems = Vec::new();
    for kind in Kind::ALL {
        let calls = whole
            .calls
            .iter()
            .filter(|call| kind.concerns(call))
            .count();
        assert!(calls > 0, "{kind:?}");
        let step = some.map_or(1, |some| calls.div_ceil(some));
        let first = usize::try_from(seed % u64::try_from(step).unwrap()).unwrap();
        seed = seed.rotate_left(7).wrapping_mul(6_364_136_223_846_793_005);
        for at in (first..calls).step_by(step) {
            let traced = run(Some(Fault { kind, at }));
            tried += 1;
            failed += usize::from(!traced.output.status.success());
            let judged = catch_unwind(AssertUnwindSafe(|| {
                judge(operation, kind, &traced, &world, [&before, &after])
            }));
            let problem = match judged {
                Ok(Ok(())) => None,
                Ok(Err(problem)) => Some(problem),
                Err(panic) => Some(panic.downcast_ref::<String>().cloned().unwrap_or_default()),
            };
            if let Some(problem) = problem {
                problems.push(describe(kind, at, &traced, &problem));
            }
            world.reset();
        }
    }
    assert!(failed > 0, "no fault had an effect");
    assert!(
        problems.is_empty(),
        "{} of {tried} faults:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// Kills a process before it writes a file, and keeps what it left.
fn interrupt(world: &World, words: &[&str], file: &str) {
    let run = |fault| tracer::run(&world.command(words.iter().copied()), &world.place(), fault);
    let whole = run(None);
    world.reset();
    let mut calls = (whole.calls.iter()).filter(|call| Kind::Killed.concerns(call));
    let at = calls.position(|call| call.does == Does::Write && call.path.ends_with(file));
    let killed = run(Some(Fault {
        kind: Kind::Killed,
        at: at.expect("it is written"),
    }));
    assert!(killed.output.status.signal().is_some());
    world.keep();
}

fn seed() -> u64 {
    let given = std::env::var("BRIG_TEST_SEED").ok();
    given.map_or_else(
        || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.unwrap().subsec_nanos().into()
        },
        |given| given.parse().unwrap(),
    )
}

fn judge(
    operation: &Operation,
    kind: Kind,
    traced: &Traced,
    world: &World,
    [before, after]: [&View; 2],
) -> Result<(), String> {
    let output = &traced.output;
    let killed = output.status.signal().is_some();
    if killed && kind != Kind::Killed {
        return Err("it was killed by a signal".to_owned());
    }
    let acknowledged = output.status.success();
    let (mut incomplete, mut unconfirmed, mut reported) = (false, false, false);
    if !acknowledged && !killed {
        let answer: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| "the answer is not one JSON object".to_owned())?;
        let Some(code) = answer["error"]["code"].as_str() else {
            return Err("the answer has no code".to_owned());
        };
        incomplete = code == "operation.incomplete";
        unconfirmed = code == "audit.unwritable";
        // An execution that took place, and whose end is not on record.
        reported = unconfirmed && answer["result"].is_object();
        if output.status.code() != Some(125) {
            return Err("the exit code is not 125".to_owned());
        }
    }

    if !acknowledged && !incomplete && world.is_as_made() {
        return Ok(());
    }
    let records = world.records();
    let view = world.view();
    let changed = view != *before;
    if changed && view != *after {
        return Err(format!("neither the old nor the new state: {view:#?}"));
    }
    if (acknowledged || incomplete) && view != *after {
        return Err("it was acknowledged, and is not there".to_owned());
    }
    if changed && !(acknowledged || incomplete || reported || killed) {
        return Err("it was refused, and happened".to_owned());
    }

    let position = |event: &str| records.iter().rposition(|record| record["event"] == event);
    let ends = position(operation.ends_with);
    if acknowledged && ends.is_none() {
        return Err(format!("`{}` is not on record", operation.ends_with));
    }
    if changed && position(operation.starts_with).is_none() {
        return Err(format!("`{}` is not on record", operation.starts_with));
    }
    let failed = ["operation_failed", "files_not_saved"]
        .iter()
        .any(|event| position(event).is_some());
    if before != after && !changed && ends.is_some() && !failed {
        // The record comes first. Where nothing could be recorded any more, it is the last, but for the receipt.
        let later = records.iter().skip(ends.map_or(0, |at| at + 1));
        let last = later.filter(|record| record["event"] != "receipt").count() == 0;
        if !last || !(kind.lasts() || unconfirmed) {
            return Err(format!(
                "`{}` is on record, and did not happen",
                operation.ends_with
            ));
        }
    }
    Ok(())
}

fn describe(kind: Kind, at: usize, traced: &Traced, problem: &str) -> String {
    let output = &traced.output;
    let hit = traced.hit.as_ref().map_or_else(
        || "nothing was hit".to_owned(),
        |call| format!("{} {}", call.name, call.path.display()),
    );
    format!(
        "{kind:?} at {at}, {hit}: {problem}\n  {:?}\n  stdout: {}\n  stderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
