//! The script in the sandbox, and command lines for it.

use std::fmt::Write;

use brig_sandbox::request::Work;
use brig_sandbox::{Execution, Language};

/// Belongs to root in the sandbox.
pub(crate) const BASE: &str = "/var/lib/brig";
pub(crate) const PATH: &str = "/var/lib/brig/brig.sh";
pub(crate) const SCRIPT: &str = include_str!("helper.sh");
pub(crate) const WORKSPACE: &str = "/workspace";
/// Prints what the files of the workspace take.
pub(crate) const USED: &str = "used";

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What the program's script writes to descriptor 9 if it can't start the program.
pub(crate) const NO_DIRECTORY: &str = "directory";
pub(crate) const NOT_FOUND: &str = "missing";
pub(crate) const NOT_EXECUTABLE: &str = "denied";

/// A call of the script.
pub(crate) fn command(arguments: &[&str]) -> String {
    let mut line = format!("sh {PATH}");
    for argument in arguments {
        line.push(' ');
        line.push_str(&quoted(argument));
    }
    line
}

/// As one word of a shell. A NUL byte was refused before.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The file with the source code, if it is source code.
pub(crate) fn source_name(execution: &Execution) -> Option<String> {
    let Work::Code { language, .. } = &execution.work else {
        return None;
    };
    let given = execution.script.as_deref();
    let given = given.and_then(|script| script.rsplit('/').next());
    let usual = format!("main.{}", language.extension());
    Some(format!("code/{}", given.unwrap_or(&usual)))
}

/// The script that becomes the program. Everything in it is quoted.
pub(crate) fn program(execution: &Execution, id: &str) -> String {
    let mut argv: Vec<String> = Vec::new();
    match &execution.work {
        Work::Command(command) => argv.extend(command.iter().cloned()),
        Work::Code { language, args, .. } => {
            let interpreter = match language {
                Language::Python => "python3",
                other => other.name(),
            };
            let source = source_name(execution).unwrap_or_default();
            argv.push(interpreter.into());
            argv.push(format!("{BASE}/{id}/{source}"));
            argv.extend(args.iter().cloned());
        }
    }
    let directory = match execution.cwd.as_deref() {
        None => WORKSPACE.to_owned(),
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(path) => format!("{WORKSPACE}/{path}"),
    };
    let given = |name: &str| execution.env.iter().any(|(own, _)| own == name);
    let usual = [
        ("PATH", DEFAULT_PATH),
        ("HOME", WORKSPACE),
        ("LANG", "C.UTF-8"),
    ];
    let usual = usual.into_iter().filter(|(name, _)| !given(name));
    let usual = usual.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mark = ("BRIG_EXECUTION".to_owned(), id.to_owned());
    let variables: Vec<(String, String)> = (usual.chain(execution.env.iter().cloned()))
        .filter(|(name, _)| *name != mark.0)
        .chain([mark.clone()])
        .collect();
    let path = variables.iter().find(|(name, _)| name == "PATH");
    let path = path.map_or(DEFAULT_PATH, |(_, value)| value.as_str());
    let name = quoted(argv.first().map_or("", String::as_str));
    // A shell starts background programs with these two signals ignored.
    let mut script = format!(
        "umask 022\ncd -- {} 2>/dev/null || {{ echo {NO_DIRECTORY} >&9; exit 126; }}\n\
         PATH={}\n\
         case {name} in\n\
         */*) [ -e {name} ] || {{ echo {NOT_FOUND} >&9; exit 127; }}\n\
         [ -f {name} ] && [ -x {name} ] || {{ echo {NOT_EXECUTABLE} >&9; exit 126; }} ;;\n\
         *) command -v -- {name} >/dev/null || {{ echo {NOT_FOUND} >&9; exit 127; }} ;;\n\
         esac\nexec 9>&-\nexec /usr/bin/env -i --default-signal=INT,QUIT",
        quoted(&directory),
        quoted(path),
    );
    for (name, value) in &variables {
        let _ = write!(script, " {}", quoted(&format!("{name}={value}")));
    }
    // Otherwise `env` would take a name with `=` for a variable.
    let _ = write!(script, " /bin/sh -c 'exec \"$@\"' sh");
    for argument in &argv {
        let _ = write!(script, " {}", quoted(argument));
    }
    script.push('\n');
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_stays_one_word() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME `x` \n"), "'it'\\''s $HOME `x` \n'");
        assert_eq!(
            command(&["put", "id", "x; rm -rf '/'"]),
            r"sh /var/lib/brig/brig.sh 'put' 'id' 'x; rm -rf '\''/'\'''"
        );
    }

    #[test]
    fn the_shell_accepts_the_script() {
        let checked = std::process::Command::new("sh")
            .args(["-n", "-c", SCRIPT])
            .status();
        assert!(checked.expect("a shell").success());
    }
}
