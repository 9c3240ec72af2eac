//! What a sandboxed run costs, beside what else is installed, measured in one interleaved run.
//! Timings never fail: the table says which targets were missed.
//!
//!     cargo bench                      the whole table
//!     cargo bench -- --rounds 50       quicker

mod cases;
mod measure;
mod memory;

use std::time::Duration;

use measure::{Row, Stats};

const PYTHON: &str = "/usr/bin/python3";

fn main() {
    let rounds = rounds();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (mut cases, notes) = cases::all(&runtime);
    let stats = measure::interleave(&mut cases, rounds);
    drop(cases);

    println!("\n{rounds} interleaved rounds, every control on\n");
    print_table(&stats);
    for note in notes {
        println!("{note}");
    }
    println!("\ntargets");
    for line in targets(&stats) {
        println!("  {line}");
    }
    println!("  {}", memory::idle_session(&runtime));
}

fn rounds() -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != "--rounds").skip(1);
    args.next()
        .and_then(|value| value.parse().ok())
        .unwrap_or(200)
}

fn print_table(stats: &[Row]) {
    println!(
        "{:<44} {:>10} {:>10} {:>10} {:>7}   compared with",
        "", "best", "median", "p99", "ratio"
    );
    for (name, base, own) in stats {
        let ratio = base.and_then(|base| ratio(stats, name, base));
        println!(
            "{name:<44} {:>10} {:>10} {:>10} {:>7}   {}",
            milliseconds(own.best),
            milliseconds(own.median),
            milliseconds(own.p99),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            base.unwrap_or_default(),
        );
    }
}

fn targets(stats: &[Row]) -> Vec<String> {
    let of = |name: &str| find(stats, name);
    let mut lines = Vec::new();
    let mut ratio_to = |name: &'static str, base: &'static str, most: f64| {
        lines.push(match ratio(stats, name, base) {
            Some(ratio) => verdict(
                ratio <= most,
                &format!("{name}: {ratio:.2} × {base}, at most {most:.2}"),
            ),
            None => format!("not measured  {name} against {base}"),
        });
    };
    ratio_to(cases::BRIG_TRUE, cases::BWRAP_TRUE, 1.0);
    ratio_to(cases::BRIG_PYTHON, cases::BARE_PYTHON, 1.5);
    let mut within = |name: &'static str, what: &str, value: Option<Duration>, most: u64| {
        lines.push(match value {
            Some(value) => verdict(
                value <= Duration::from_millis(most),
                &format!("{name}: {what} {}, at most {most} ms", milliseconds(value)),
            ),
            None => format!("not measured  {name}"),
        });
    };
    let whole = of(cases::LIBRARY_WHOLE);
    within(
        cases::LIBRARY_WHOLE,
        "median",
        whole.map(|stats| stats.median),
        5,
    );
    within(
        cases::LIBRARY_WHOLE,
        "p99",
        whole.map(|stats| stats.p99),
        20,
    );
    let (off, on) = (of(cases::NETWORK_OFF), of(cases::NETWORK_ON));
    let added = (off.zip(on)).map(|(off, on)| on.median.saturating_sub(off.median));
    within(cases::NETWORK_ON, "more than without", added, 2);
    within(
        cases::LIVE_TRUE,
        "median",
        of(cases::LIVE_TRUE).map(|stats| stats.median),
        2,
    );
    lines
}

pub fn verdict(ok: bool, what: &str) -> String {
    format!("{:<13} {what}", if ok { "ok" } else { "missed" })
}

fn find<'a>(stats: &'a [Row], name: &str) -> Option<&'a Stats> {
    stats
        .iter()
        .find(|(own, ..)| *own == name)
        .map(|(.., stats)| stats)
}

/// Of medians, both from the same run.
fn ratio(stats: &[Row], name: &str, base: &str) -> Option<f64> {
    let (own, base) = (find(stats, name)?, find(stats, base)?);
    Some(own.median.as_secs_f64() / base.median.as_secs_f64())
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
