//! What the tests of all crates share.

mod again;
mod processes;
mod server;

pub use again::{again, again_by, is_alone, name_in, name_of, passes};
pub use processes::descendants;
pub use server::Server;

use std::fs::OpenOptions;
use std::io::Write;

/// Says that a test could not be tried here, and why. `scripts/test` lists these at its end, so
/// that nothing is skipped silently.
#[track_caller]
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIP: {test}: {why}");
    let Some(list) = std::env::var_os("BRIG_TEST_SKIPS") else {
        return;
    };
    let place =
        std::env::var("BRIG_TEST_WHERE").map_or(String::new(), |place| format!("{place}: "));
    OpenOptions::new()
        .append(true)
        .open(&list)
        .and_then(|mut file| file.write_all(format!("{place}{test}: {why}\n").as_bytes()))
        .unwrap_or_else(|error| panic!("can't note a skipped test in {}: {error}", list.display()));
}

/// How much longer than usual something may take: more than 1 on an emulated machine.
pub fn patience() -> u32 {
    if std::env::var_os("BRIG_TEST_SLOW").is_some() {
        10
    } else {
        1
    }
}
