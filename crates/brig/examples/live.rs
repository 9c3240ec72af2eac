//! Runs `pass` in a live session, as often as each line of its input says, and answers with the microseconds that each
//! took. `scripts/bench-python` compares the Python package with it.

use std::io::{BufRead, Write};
use std::time::Instant;

use brig::{Language, Native, Request, Sandbox, SessionConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sandbox = Sandbox::builder(Native::new()).build()?;
    let config = SessionConfig::default();
    let session = sandbox
        .create_session(&"bench".parse()?, None, config)
        .await?;
    for line in std::io::stdin().lock().lines() {
        let rounds: usize = line?.trim().parse()?;
        let mut took = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let begun = Instant::now();
            let request = Request::code(Language::Python, "pass");
            let report = session.start(request).await?.wait().await?;
            took.push(begun.elapsed().as_micros().to_string());
            if !report.outcome.success() {
                return Err("the program failed".into());
            }
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", took.join(" "))?;
        out.flush()?;
    }
    session.destroy().await?;
    Ok(())
}
