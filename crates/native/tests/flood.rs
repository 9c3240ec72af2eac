//! Very many attempts. In a program of its own: what others take of memory would be counted too.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod listed;

use std::path::Path;
use std::sync::Arc;

use brig_audit::{Command, Event as Fact, Log, Options, Record};
use listed::{run, stdout, under};

fn commands_in(folder: &Path) -> (Vec<Command>, u64) {
    let (mut kept, mut suppressed) = (Vec::new(), 0);
    let mut cursor = brig_audit::log::Cursor::new(folder);
    cursor
        .read(|line| {
            let record: Record = serde_json::from_str(line.record).unwrap();
            match record.event {
                Fact::CommandAttempted(command) if !command.allowed => kept.push(command),
                Fact::Suppressed { of, count, .. } if of == "command_attempted" => {
                    suppressed += count;
                }
                _ => {}
            }
            true
        })
        .unwrap();
    (kept, suppressed)
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = text.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Alike, and each for another program.
#[tokio::test]
async fn ten_thousand_attempts_lose_neither_the_first_nor_the_count_nor_memory() {
    const ATTEMPTS: u64 = 10_000;
    for path in ["b'/opt/az'", "b'/opt/%d/az' % n"] {
        let code = format!(
            "import ctypes\nlibc = ctypes.CDLL(None)\nfor n in range({ATTEMPTS}):\n\
             \x20   argv = (ctypes.c_char_p * 3)(b'az', b'%d' % n, None)\n\
             \x20   libc.execve({path}, argv, None)\nprint('done')\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let log = Arc::new(Log::open(folder.path(), Options::default()).unwrap());
        let before = resident_bytes();
        let report = run(log, under("command_denylist: [az]\n"), &code).await;
        let grown = resident_bytes().saturating_sub(before);
        assert_eq!(stdout(&report), "done\n");
        assert!(grown < 64 << 20, "{grown} bytes");
        let listed = report.attempted.commands.iter();
        let listed = listed.filter(|one| !one.allowed).count() as u64;
        assert_eq!(listed + report.attempted.omitted.commands, ATTEMPTS);

        let (kept, suppressed) = commands_in(folder.path());
        assert_eq!(kept[0].arguments, ["az", "0"], "the first");
        assert_eq!(kept.len() as u64 + suppressed, ATTEMPTS);
        assert!(suppressed > ATTEMPTS / 2, "{suppressed}");
    }
}
