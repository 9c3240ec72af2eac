//! Many sandboxes, made and ended in every way, must leave nothing behind.
//!
//!     scripts/soak [--short] [--seed N]

mod census;
mod cycles;
mod kills;
mod many;
mod random;

use std::path::PathBuf;
use std::process::ExitCode;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    cycles: usize,
    live: usize,
    kills: usize,
}

const FULL: Size = Size {
    cycles: 10_000,
    live: 1_000,
    kills: 200,
};
const SHORT: Size = Size {
    cycles: 300,
    live: 50,
    kills: 20,
};

/// Tells what it did, or what was wrong.
type Part<'a> = &'a dyn Fn() -> Result<String, String>;

struct Options {
    size: Size,
    brig: PathBuf,
    seed: u64,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("soak: {why}");
            return ExitCode::from(2);
        }
    };
    // Whatever is orphaned below this process comes to it, so that it can be counted.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .expect("to adopt orphans");
    raise_descriptor_limit();
    println!("soak: seed {}", options.seed);

    let parts: [(&str, Part<'_>); 3] = [
        ("create and destroy", &|| cycles::run(options.size.cycles)),
        ("live at once", &|| many::run(options.size.live)),
        ("kill -9", &|| {
            kills::run(options.size.kills, &options.brig, options.seed)
        }),
    ];
    let mut failed = false;
    for (name, part) in parts {
        match part() {
            Ok(told) => println!("soak: {name}: {told}"),
            Err(why) => {
                println!("soak: {name}: FAILED: {why}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

fn options() -> Result<Options, String> {
    let mut size = FULL;
    let mut brig = None;
    let mut seed = u64::from(std::process::id());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--short" => size = SHORT,
            "--brig" => brig = Some(PathBuf::from(value()?)),
            "--seed" => seed = value()?.parse().map_err(|_| "the seed is not a number")?,
            _ => return Err(format!("unknown argument `{arg}`")),
        }
    }
    let brig = brig.ok_or("--brig PATH is missing")?;
    Ok(Options { size, brig, seed })
}

/// A thousand sessions need a few thousand descriptors.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        eprintln!("soak: the limit on descriptors stays: {error}");
    }
}
