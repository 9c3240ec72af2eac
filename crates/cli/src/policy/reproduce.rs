//! The command that shows why a policy denied a run.

use std::ffi::OsString;

use crate::escape::{is_harmful, shell_word};

/// A longer command is described, and not repeated.
const LONGEST: usize = 400;

/// Brig's own command line with `--explain`, for a hint. `words` of it name the subcommand.
pub(crate) fn explain_command(words: usize) -> String {
    with_explain(std::env::args_os().skip(1).collect(), words)
}

fn with_explain(args: Vec<OsString>, words: usize) -> String {
    let described = "the same command with --explain".to_owned();
    let Some(mut args) =
        (args.into_iter().map(|arg| arg.into_string().ok())).collect::<Option<Vec<String>>>()
    else {
        return described;
    };
    // The values of variables may be secrets, and standard input can't be repeated.
    let short = |arg: &str| arg.starts_with('-') && !arg.starts_with("--") && arg.contains('e');
    let own = args.iter().take_while(|arg| *arg != "--");
    let unfit = own
        .clone()
        .any(|arg| arg == "-" || short(arg) || arg.starts_with("--env"));
    if unfit || args.len() < words {
        return described;
    }
    args.insert(words, "--explain".into());
    let mut line = String::from("brig");
    for arg in &args {
        line.push(' ');
        line.push_str(&shell_word(arg));
    }
    match line.len() <= LONGEST && !line.chars().any(is_harmful) {
        true => format!("`{line}`"),
        false => described,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(args: &[&str]) -> String {
        with_explain(args.iter().map(OsString::from).collect(), 1)
    }

    #[test]
    fn the_command_is_repeated_with_the_flag() {
        assert_eq!(
            of(&["run", "--policy", "p.yaml", "-c", "import subprocess"]),
            "`brig run --explain --policy p.yaml -c 'import subprocess'`"
        );
        assert_eq!(
            of(&["run", "--policy", "p.yaml", "--", "env", "-e"]),
            "`brig run --explain --policy p.yaml -- env -e`"
        );
    }

    #[test]
    fn secrets_control_characters_and_long_code_are_not_repeated() {
        let long = "x".repeat(500);
        for args in [
            &["run", "-e", "TOKEN=secret", "a.py"][..],
            &["run", "-ie", "TOKEN=secret", "a.py"],
            &["run", "--env=TOKEN=secret", "a.py"],
            &["run", "-c", "a\nb"],
            &["run", "-c", "\u{202e}"],
            &["run", "-"],
            &["run", "-c", &long],
        ] {
            assert_eq!(of(args), "the same command with --explain", "{args:?}");
        }
    }
}
