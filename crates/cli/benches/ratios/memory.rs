//! What an idle session costs in memory that nobody else shares.

use std::fs;

use brig_testing::descendants;
use tokio::runtime::Runtime;

use crate::{cases, verdict};

const SESSIONS: u64 = 50;
const MOST: u64 = 1_500_000;

pub(crate) fn idle_session(runtime: &Runtime) -> String {
    match measure(runtime) {
        Ok((inside, outside)) => verdict(
            inside + outside <= MOST,
            &format!(
                "idle session: {} kB of private memory ({} inside, {} in the owner), at most {} kB",
                (inside + outside) / 1000,
                inside / 1000,
                outside / 1000,
                MOST / 1000
            ),
        ),
        Err(why) => format!("not measured  memory of an idle session: {why}"),
    }
}

/// Private bytes per session: of its processes, and of this process.
fn measure(runtime: &Runtime) -> Result<(u64, u64), String> {
    let sandbox = cases::sandbox();
    let sessions_before: Vec<u32> = descendants();
    let own_before = private("self")?;
    let sessions = (0..SESSIONS)
        .map(|_| runtime.block_on(cases::session(&sandbox)))
        .collect::<Result<Vec<_>, _>>()?;
    let own_after = private("self")?;
    let mut inside = 0;
    for pid in descendants() {
        if !sessions_before.contains(&pid) {
            inside += private(&pid.to_string())?;
        }
    }
    for session in sessions {
        runtime
            .block_on(session.destroy())
            .map_err(|error| error.to_string())?;
    }
    Ok((
        inside / SESSIONS,
        own_after.saturating_sub(own_before) / SESSIONS,
    ))
}

fn private(pid: &str) -> Result<u64, String> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    Ok(text
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .sum())
}
