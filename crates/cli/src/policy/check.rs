use serde_json::{Value, json};

use super::load;
use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::{escape, exit, json, units, write_out};

pub(crate) fn run(args: &CheckArgs) -> Result<u8, Failure> {
    let mut files: Vec<Value> = Vec::new();
    let mut lines = String::new();
    let mut valid = true;
    for file in &args.files {
        let name = file.display().to_string();
        match load::document(file, args.compat.compat())? {
            Ok(loaded) => {
                let document = loaded.document;
                let rules = document.rules().len();
                lines.push_str(&escape::line(&format!(
                    "{name}: valid, {}, {}",
                    units::count(rules, "rule"),
                    document.digest()
                )));
                lines.push('\n');
                load::show(&loaded.warnings);
                files.push(json!({
                    "file": name,
                    "valid": true,
                    "name": document.name(),
                    "rules": rules,
                    "digest": document.digest(),
                    "problems": loaded.warnings,
                }));
            }
            Err(problems) => {
                valid = false;
                load::show(&problems.0);
                files.push(json!({
                    "file": name,
                    "valid": false,
                    "name": null,
                    "rules": null,
                    "digest": null,
                    "problems": problems.0,
                }));
            }
        }
    }
    let written = if args.json {
        json::print(&json!({ "valid": valid, "files": files, "error": null }));
        0
    } else {
        write_out(lines.as_bytes())
    };
    Ok(if valid { written } else { exit::NO })
}
