use std::ffi::OsString;

use clap::{ArgAction, CommandFactory, Parser};

use super::{Cli, work};

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap_or(0) % end
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const VALUES: [&str; 12] = [
    "1",
    "5s",
    "256M",
    "a",
    "name=value",
    "./data:/data",
    "true",
    "",
    "--",
    "-x",
    "example.org",
    "native",
];

/// A command line of flags that there are, some with wrong values, and of words that are no flags.
fn line(numbers: &mut Numbers, start: &[&str], command: &clap::Command) -> Vec<String> {
    let mut line: Vec<String> = ["brig"]
        .iter()
        .chain(start)
        .map(|word| (*word).into())
        .collect();
    let flags: Vec<&clap::Arg> = command.get_arguments().collect();
    for _ in 0..numbers.below(4) {
        let flag = flags[numbers.below(flags.len())];
        let takes_value = matches!(flag.get_action(), ArgAction::Set | ArgAction::Append);
        let values = flag.get_possible_values();
        let value = match values.is_empty() || numbers.below(4) == 0 {
            true => numbers.of(&VALUES).to_owned(),
            false => values[numbers.below(values.len())].get_name().to_owned(),
        };
        let word = match (flag.get_long(), flag.get_short()) {
            (Some(long), None) => format!("--{long}"),
            (Some(long), Some(_)) if numbers.below(2) == 0 => format!("--{long}"),
            (_, Some(short)) => format!("-{short}"),
            (None, None) => value.clone(),
        };
        match (takes_value && word != value, numbers.below(2)) {
            (true, 0) if word.starts_with("--") => line.push(format!("{word}={value}")),
            (true, _) => line.extend([word, value]),
            (false, _) => line.push(word),
        }
    }
    let rest: &[&[&str]] = &[
        &[],
        &["--", "/bin/true"],
        &["-c", "pass"],
        &["script.py", "--flag"],
        &["--help"],
        &["-c"],
        &["--", "a", "--", "b"],
        &["--no-such-flag"],
    ];
    line.extend(
        rest[numbers.below(rest.len())]
            .iter()
            .map(|word| (*word).into()),
    );
    line
}

#[test]
fn the_quick_parser_reads_what_the_whole_one_reads() {
    let whole = Cli::command();
    let find = |path: &[&str]| {
        path.iter().fold(&whole, |command, name| {
            command.find_subcommand(name).expect("a command")
        })
    };
    let starts: [&[&str]; 4] = [
        &["run"],
        &["session", "exec", "id"],
        &["session", "create"],
        &["session", "inspect"],
    ];
    let (mut numbers, mut quick_ones) = (Numbers(1), 0);
    for round in 0..200 {
        let start = starts[if round % 2 == 0 {
            0
        } else {
            numbers.below(starts.len())
        }];
        let names = &start[..start.len().min(2)];
        let line = line(&mut numbers, start, find(names));
        let args: Vec<OsString> = work::double_dash(line.iter().map(OsString::from)).collect();
        if let Some(quick) = Cli::parse_frequent(&args) {
            quick_ones += 1;
            let whole =
                Cli::try_parse_from(args).unwrap_or_else(|error| panic!("{line:?}: {error}"));
            assert_eq!(format!("{quick:?}"), format!("{whole:?}"), "{line:?}");
        } else {
            assert!(Cli::try_parse_from(args).is_err(), "{line:?}");
        }
    }
    assert!(quick_ones > 40, "only {quick_ones} lines were correct");
}
