use std::fmt::Write as _;

use brig_policy::{Change, Direction, diff};
use serde_json::json;

use super::load;
use crate::args::DiffArgs;
use crate::failure::Failure;
use crate::{escape, exit, json, write_out};

pub(crate) fn run(args: &DiffArgs) -> Result<u8, Failure> {
    let before = load::load_one(&args.before, args.compat.compat())?;
    let after = load::load_one(&args.after, args.compat.compat())?;
    let changes = diff(&before, &after);
    let looser = changes
        .iter()
        .any(|change| change.direction == Direction::Looser);
    let written = if args.json {
        json::print(&json!({
            "before": before.digest(),
            "after": after.digest(),
            "looser": looser,
            "changes": changes,
            "error": null,
        }));
        0
    } else {
        write_out(text(&changes).as_bytes())
    };
    Ok(if looser && args.exit_code {
        exit::NO
    } else {
        written
    })
}

fn text(changes: &[Change]) -> String {
    let parts = [
        (Direction::Looser, "newly possible:", '+'),
        (Direction::Tighter, "no longer possible:", '-'),
        (Direction::Changed, "different:", '~'),
    ];
    let mut text = String::new();
    for (direction, heading, sign) in parts {
        let mut of_this = changes
            .iter()
            .filter(|change| change.direction == direction)
            .peekable();
        if of_this.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "{heading}");
        for change in of_this {
            let mut line = format!("{sign} {}: {}", change.part, change.message);
            if let Some(context) = &change.context {
                let _ = write!(line, ", for {}", json!(context));
            }
            let _ = writeln!(text, "{}", escape::line(&line));
        }
    }
    if text.is_empty() {
        text.push_str("no difference was found\n");
    }
    text
}
