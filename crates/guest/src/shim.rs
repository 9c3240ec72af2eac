//! What stands in place of a program that may not be run: it says so and fails.

use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

/// As shells report a program that can't be run.
const DENIED: i32 = 126;
const LONGEST: usize = 64;

fn main() {
    let words: Vec<CString> = std::env::args_os()
        .filter_map(|word| CString::new(word.into_vec()).ok())
        .collect();
    // Can't succeed. Whoever watches what is started learns by it, and not only by what was asked
    // for before, that a denied program was started, and as what.
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
