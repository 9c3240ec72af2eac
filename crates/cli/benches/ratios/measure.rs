//! Interleaved timing: each round runs every case once, so that whatever else the machine does
//! meets all of them alike.

use std::time::{Duration, Instant};

/// Runs before anything is timed.
const WARM_UP: usize = 5;

pub(crate) struct Case<'a> {
    pub name: &'static str,
    /// The case its ratio is shown to.
    pub base: Option<&'static str>,
    pub run: Box<dyn FnMut() -> Result<(), String> + 'a>,
}

#[derive(Debug)]
pub(crate) struct Stats {
    /// What it takes when nothing else happens on the machine.
    pub best: Duration,
    pub median: Duration,
    pub p99: Duration,
}

pub(crate) type Row = (&'static str, Option<&'static str>, Stats);

/// A case that fails is left out, and says why.
pub(crate) fn interleave(cases: &mut Vec<Case<'_>>, rounds: usize) -> Vec<Row> {
    cases.retain_mut(|case| {
        let failure = (0..WARM_UP).find_map(|_| (case.run)().err());
        if let Some(why) = &failure {
            println!("{}: left out: {why}", case.name);
        }
        failure.is_none()
    });
    let mut times = vec![Vec::with_capacity(rounds); cases.len()];
    for round in 0..rounds {
        // Each round starts elsewhere, so that no case always follows the same other.
        for step in 0..cases.len() {
            let index = (round + step) % cases.len();
            let began = Instant::now();
            let outcome = (cases[index].run)();
            let took = began.elapsed();
            match outcome {
                Ok(()) => times[index].push(took),
                Err(why) => println!("{}: round {round}: {why}", cases[index].name),
            }
        }
    }
    cases
        .iter()
        .zip(times)
        .filter(|(_, times)| !times.is_empty())
        .map(|(case, times)| (case.name, case.base, Stats::of(times)))
        .collect()
}

impl Stats {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a length"
        )]
        let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
        Self {
            best: at(0.0),
            median: at(0.5),
            p99: at(0.99),
        }
    }
}
