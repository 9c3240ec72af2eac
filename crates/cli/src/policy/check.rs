use serde_json::{Value, json};

use super::load;
use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::{escape, exit, json, write_out};

pub fn run(args: &CheckArgs) -> Result<u8, Failure> {
    let mut files: Vec<Value> = Vec::new();
    let mut lines = String::new();
    let mut sound = true;
    for file in &args.files {
        let name = file.display().to_string();
        match load::document(file, args.compat.compat())? {
            Ok(loaded) => {
                let document = loaded.document;
                let rules = document.rules().len();
                let plural = if rules == 1 { "" } else { "s" };
                lines.push_str(&escape::line(&format!(
                    "{name}: sound, {rules} rule{plural}, {}",
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
                sound = false;
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
        json::print(&json!({ "valid": sound, "files": files, "error": null }));
        0
    } else {
        write_out(lines.as_bytes())
    };
    Ok(if sound { written } else { exit::NO })
}
