use std::io::{BufRead, Write};

use brig_policy::eval_line;

use crate::exit;
use crate::failure::Failure;
use crate::stdout::{OutputFormat, Stdout};

pub(crate) fn run() -> Result<u8, Failure> {
    let mut out = Stdout::new(OutputFormat::Json);
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| Failure::file("standard input", &error))?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        if let Err(error) = writeln!(out, "{}", eval_line(&line)) {
            return Ok(exit::of_unwritten(&error));
        }
    }
    Ok(match out.finish() {
        Ok(()) => 0,
        Err(error) => exit::of_unwritten(&error),
    })
}
