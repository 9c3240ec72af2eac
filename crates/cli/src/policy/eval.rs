use std::io::{BufRead, BufWriter, Write};

use brig_policy::eval_line;

use crate::exit;
use crate::failure::Failure;

pub fn run() -> Result<u8, Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| Failure::file("standard input", &error))?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        if writeln!(out, "{}", eval_line(&line)).is_err() {
            return Ok(exit::of_broken_pipe());
        }
    }
    Ok(match out.flush() {
        Ok(()) => 0,
        Err(_) => exit::of_broken_pipe(),
    })
}
