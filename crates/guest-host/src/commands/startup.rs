//! What the kernel itself opens to start a file: the loader of a program, the interpreter of a
//! script.

use std::path::PathBuf;

/// As much as the kernel looks at for a script; a program's own table may lie further in.
pub(super) const ENOUGH: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Startup {
    /// Nothing else.
    Alone,
    Loader(PathBuf),
    /// The interpreter, and if it is `env`, the program that it is told to look for, with its
    /// arguments before the script.
    Script(PathBuf, Vec<String>),
}

pub(super) fn needs(start: &[u8]) -> Startup {
    if let Some(line) = start.strip_prefix(b"#!") {
        return script(line);
    }
    loader(start).map_or(Startup::Alone, Startup::Loader)
}

fn script(line: &[u8]) -> Startup {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let Some(interpreter) = words.next().filter(|word| word.starts_with('/')) else {
        return Startup::Alone;
    };
    let told = interpreter.ends_with("/env").then(|| {
        let words = words.skip_while(|word| word.starts_with('-') || word.contains('='));
        words.map(str::to_owned).collect()
    });
    Startup::Script(interpreter.into(), told.unwrap_or_default())
}

/// The path in the segment that names the loader.
fn loader(start: &[u8]) -> Option<PathBuf> {
    const INTERPRETER: u32 = 3;
    let wide = match start.get(..6)? {
        [0x7f, b'E', b'L', b'F', 2, 1] => true,
        [0x7f, b'E', b'L', b'F', 1, 1] => false,
        _ => return None,
    };
    let short = |at: usize| Some(u16::from_le_bytes(*start.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_le_bytes(*start.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u64::from_le_bytes(*start.get(at..)?.first_chunk()?));
    let number = |at: usize| {
        if wide {
            long(at)
        } else {
            word(at).map(u64::from)
        }
    };
    let (table, sizes) = if wide { (0x20, 0x36) } else { (0x1c, 0x2a) };
    let table = usize::try_from(number(table)?).ok()?;
    let (size, count) = (usize::from(short(sizes)?), usize::from(short(sizes + 2)?));
    for index in 0..count {
        let at = table.checked_add(size.checked_mul(index)?)?;
        if word(at)? != INTERPRETER {
            continue;
        }
        let (offset, length) = if wide { (8, 0x20) } else { (4, 0x10) };
        let offset = usize::try_from(number(at + offset)?).ok()?;
        let length = usize::try_from(number(at + length)?).ok()?;
        let text = start.get(offset..offset.checked_add(length)?)?;
        let text = text.split(|byte| *byte == 0).next()?;
        return Some(PathBuf::from(String::from_utf8(text.to_vec()).ok()?));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_name_their_interpreter() {
        let script = |text: &str| needs(text.as_bytes());
        let bare = |path: &str| Startup::Script(path.into(), Vec::new());
        assert_eq!(script("#!/bin/sh\necho"), bare("/bin/sh"));
        assert_eq!(script("#! /usr/bin/perl -w\n"), bare("/usr/bin/perl"));
        let env = Startup::Script(
            "/usr/bin/env".into(),
            ["python3", "-x"].map(String::from).into(),
        );
        assert_eq!(script("#!/usr/bin/env -S A=b python3 -x\n"), env);
        assert_eq!(script("echo"), Startup::Alone);
    }

    #[test]
    fn programs_name_their_loader() {
        let this = std::fs::read(std::env::current_exe().expect("this program")).expect("read");
        let Startup::Loader(loader) = needs(&this[..ENOUGH]) else {
            panic!("a test is a dynamic program");
        };
        assert!(loader.exists(), "{loader:?}");
        for length in 0..600 {
            let _ = needs(&this[..length]);
        }
    }
}
