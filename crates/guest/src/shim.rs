//! The stand-in in place of a denied program: prints that it is denied, and fails.

use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

/// The exit code of shells for a command that can't be executed.
const DENIED: i32 = 126;
const LONGEST: usize = 64;

fn main() {
    let words: Vec<CString> = std::env::args_os()
        .filter_map(|word| CString::new(word.into_vec()).ok())
        .collect();
    // Can't succeed. It notifies the seccomp supervisor that a denied program was started, and with
    // which arguments, also if the request for it could not be seen.
    let root = CString::from(c"/");
    let _ = brig_linux::process::exec(&root, &words, &[]);

    let name = words.first().map(|word| word.to_string_lossy());
    let name = name.as_deref().unwrap_or_default();
    let name: String = name
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .escape_debug()
        .collect();
    let name: String = name.chars().take(LONGEST).collect();
    let line = format!("brig: {name}: command denied by policy\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    brig_linux::process::exit_now(DENIED)
}
