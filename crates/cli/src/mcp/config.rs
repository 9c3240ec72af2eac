//! `brig mcp config`: how a client starts the server.

use std::ffi::OsString;
use std::path::Path;

use brig_reason::ReasonCode;
use serde_json::{Value, json};

use crate::args::{Cli, Client, McpConfigArgs};
use crate::failure::{self, Failure};
use crate::{escape, write_out};

/// The flags whose value begins with a path.
const PATHS: [&str; 11] = [
    "--policy",
    "--policy-root",
    "--policy-path",
    "--env-file",
    "--mount",
    "-v",
    "--workspace",
    "-w",
    "--rootfs",
    "--python",
    "--show-secret",
];

pub(crate) fn print(args: &McpConfigArgs) -> Result<u8, Failure> {
    let flags = absolute(words(&args.flags)?);
    check(&flags)?;
    let program = std::env::current_exe().map_err(|error| Failure::file("brig", &error))?;
    let program = program.to_str().ok_or_else(not_text)?.to_owned();
    let arguments: Vec<String> = ["mcp".to_owned()].into_iter().chain(flags).collect();
    let (text, place) = snippet(args.client, &program, &arguments);
    let code = write_out(text.as_bytes());
    failure::hint(&place);
    Ok(code)
}

/// The configuration, and where it goes.
fn snippet(client: Client, program: &str, arguments: &[String]) -> (String, String) {
    let json = |key: &str, server: Value| {
        let object = json!({ key: { "brig": server } });
        format!("{object:#}\n")
    };
    let typed = json!({"type": "stdio", "command": program, "args": arguments});
    let plain = json!({"command": program, "args": arguments});
    match client {
        Client::Claude => {
            let words = [program]
                .into_iter()
                .chain(arguments.iter().map(String::as_str));
            let words: Vec<String> = words.map(escape::shell_word).collect();
            let place = format!(
                "save it as .mcp.json in the project, or run: claude mcp add brig -- {}",
                words.join(" ")
            );
            (json("mcpServers", typed), place)
        }
        Client::Cursor => {
            let place = "save it as .cursor/mcp.json in the project, or as ~/.cursor/mcp.json";
            (json("mcpServers", plain), place.into())
        }
        Client::Vscode => (
            json("servers", typed),
            "save it as .vscode/mcp.json in the project".into(),
        ),
        Client::Codex => {
            // Strings and lists of JSON are TOML, too.
            let (program, arguments) = (json!(program), json!(arguments));
            let text = format!("[mcp_servers.brig]\ncommand = {program}\nargs = {arguments}\n");
            (text, "add it to ~/.codex/config.toml".into())
        }
    }
}

fn words(flags: &[OsString]) -> Result<Vec<String>, Failure> {
    let text = |flag: &OsString| flag.to_str().map(str::to_owned).ok_or_else(not_text);
    flags
        .iter()
        .filter(|flag| *flag != "--")
        .map(text)
        .collect()
}

fn not_text() -> Failure {
    Failure::new(
        ReasonCode::InputUsage,
        "a path is not UTF-8, so it can't be part of a configuration",
    )
}

/// Finds mistakes now: the client would only say that the server did not start.
fn check(flags: &[String]) -> Result<(), Failure> {
    let relative = |word: &&str| word.starts_with("./") || word.starts_with("../");
    let commands = flags.iter().filter(|flag| flag.contains('='));
    let mut words = commands.flat_map(|flag| flag.split(['=', ' ', '\'', '"']));
    if let Some(word) = words.find(relative) {
        return Err(Failure::usage(format!(
            "`{word}` is a relative path, and the client starts the server in another directory"
        ))
        .with_hint("write an absolute path"));
    }
    let words = ["brig", "mcp"]
        .into_iter()
        .chain(flags.iter().map(String::as_str));
    match Cli::parse_args(words.map(OsString::from)) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Err(Failure::usage(
                first.strip_prefix("error: ").unwrap_or(first),
            ))
        }
    }
}

fn absolute(words: Vec<String>) -> Vec<String> {
    let path = |value: &str| {
        let absolute = std::path::absolute(Path::new(value)).ok();
        absolute
            .and_then(|path| path.to_str().map(str::to_owned))
            .unwrap_or_else(|| value.to_owned())
    };
    let mut is_path = false;
    let mut out = Vec::with_capacity(words.len());
    for word in words {
        let flag = word
            .split_once('=')
            .filter(|(name, _)| PATHS.contains(name));
        out.push(match flag {
            Some((name, value)) => format!("{name}={}", path(value)),
            None if is_path => path(&word),
            None => word.clone(),
        });
        is_path = !is_path && PATHS.contains(&word.as_str());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(words: &[&str]) -> Vec<String> {
        absolute(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn paths_become_absolute_and_nothing_else_does() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        assert_eq!(
            made(&["--policy", "a/p.yaml"]),
            ["--policy".to_owned(), format!("{here}/a/p.yaml")]
        );
        assert_eq!(made(&["--workspace=."]), [format!("--workspace={here}")]);
        assert_eq!(
            made(&["-v", "data:/data:ro"])[1],
            format!("{here}/data:/data:ro")
        );
        let others = ["--allow", "pypi.org", "-e", "A=b/c", "--policy", "/p.yaml"];
        assert_eq!(made(&others), others);
    }

    #[test]
    fn flags_that_the_server_would_refuse_are_refused() {
        assert!(check(&["--allow".into(), "pypi.org".into()]).is_ok());
        assert!(check(&["--no-such-flag".into()]).is_err());
        assert!(check(&["--timeout".into(), "soon".into()]).is_err());
        let tool = |command: &str| check(&["--tool".into(), format!("shout={command}")]);
        assert!(tool("/bin/sh -c 'tr a-z A-Z'").is_ok());
        for relative in ["./shout.py", "python3 ./shout.py", "python3 '../shout.py'"] {
            assert!(tool(relative).is_err(), "{relative}");
        }
    }
}
