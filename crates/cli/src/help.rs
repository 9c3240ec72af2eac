//! `brig help`: short texts about what concerns more than one command.

use clap::CommandFactory;

use crate::args::{Cli, HelpArgs};
use crate::failure::Failure;
use crate::write_out;

/// The topics with their texts, in the order in which they are listed.
pub(crate) const TOPICS: [(&str, &str); 6] = [
    ("exit-codes", include_str!("../help/exit-codes.txt")),
    ("network", include_str!("../help/network.txt")),
    ("policy", include_str!("../help/policy.txt")),
    ("limits", include_str!("../help/limits.txt")),
    ("environment", include_str!("../help/environment.txt")),
    ("json", include_str!("../help/json.txt")),
];

pub(crate) fn run(args: &HelpArgs) -> u8 {
    match text(&args.topic) {
        Ok(text) => write_out(text.as_bytes()),
        Err(failure) => {
            failure.show();
            failure.exit()
        }
    }
}

/// A topic, or the help of a command.
fn text(words: &[String]) -> Result<String, Failure> {
    if let [word] = words
        && let Some((_, text)) = TOPICS.iter().find(|(name, _)| name == word)
    {
        return Ok((*text).to_owned());
    }
    let mut command = Cli::command();
    // So that the usage names the whole command.
    command.build();
    for word in words {
        command = match command.find_subcommand(word) {
            Some(found) => found.clone(),
            None => return Err(unknown(words)),
        };
    }
    Ok(command.render_long_help().to_string())
}

fn unknown(words: &[String]) -> Failure {
    let names: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
    Failure::usage(format!(
        "there is no topic or command `{}`",
        words.join(" ")
    ))
    .with_hint(format!(
        "the topics are {}; `brig help` lists the commands",
        names.join(", ")
    ))
}
