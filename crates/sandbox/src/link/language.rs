//! How source code reaches an interpreter: as a file, never as an argument.

use std::collections::BTreeMap;

use crate::{Error, Language, Result};

/// Where the interpreters are inside the sandbox.
#[derive(Clone, Debug, Default)]
pub struct Interpreters {
    paths: BTreeMap<&'static str, String>,
}

/// Runs the file named by the first argument as `python -c` would run its text: the workspace is
/// first on the module path, and tracebacks show the file's lines, and nothing of this.
const PYTHON: &str = "\
import sys
sys.argv.pop(0)
def c(kind, error, at, show=sys.excepthook):
    if at and not at.tb_frame.f_back:
        at = at.tb_next
        error.with_traceback(at)
    show(kind, error, at)
sys.excepthook = c
with open(sys.argv[0], 'rb') as c:
    c = compile(c.read(), sys.argv[0], 'exec')
del sys
exec(globals().pop('c'))
";

/// A program that nobody has: asking for it says which line of code the next one goes back to.
pub const CALLER: &str = "/run/brig/.caller";

/// The same, and tells of the line that asks for another program. Anyone can get around it, so it
/// is evidence and nothing else.
const WATCHED: &str = "\
import os, sys
def c(told, frame, call, library, events):
    def hook(event, args):
        if event not in events or args[:1] == (told,):
            return
        at = frame(1)
        while at.f_back and at.f_code.co_filename.startswith((library, '<frozen ')):
            at = at.f_back
        name = at.f_code.co_filename
        if name.startswith('/run/brig/'):
            name = name.rpartition('/')[2]
        try:
            call(told, ['%s:%d' % (name, at.f_lineno)], {})
        except (OSError, ValueError):
            pass
    return hook
sys.addaudithook(c('/run/brig/.caller', sys._getframe, os.execve, os.path.dirname(os.__file__) + '/', {
    'os.system', 'os.exec', 'os.posix_spawn', 'os.spawn', 'os.fork', 'os.forkpty', 'subprocess.Popen',
    'pty.spawn', 'ctypes.dlopen', 'ctypes.dlsym'}))
del os
";

const NODE: &str = "const f=process.argv[1];\
    require('vm').runInThisContext(require('fs').readFileSync(f,'utf8'),{filename:f})";

/// A word of which so much was read may have been longer.
const READ: usize = 1024;

/// The words that a program was started with, as its caller knows them: what was given as code is
/// named by its file, without what runs it.
pub fn as_given(mut words: Vec<String>) -> Vec<String> {
    let with_hook = format!("{WATCHED}{PYTHON}");
    let ours = |text: &str| {
        let mut texts = [&*with_hook, PYTHON, NODE].into_iter();
        texts.any(|own| own == text || (text.len() >= READ && own.starts_with(text)))
    };
    if let [_, option, text, file, ..] = &*words
        && matches!(&**option, "-c" | "-e")
        && ours(text)
        && let Some(file) = file.strip_prefix("/run/brig/")
    {
        let name = file.rsplit('/').next().unwrap_or_default().to_owned();
        words.splice(1..4, [name]);
    }
    words
}

impl Language {
    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Bash => "bash",
            Language::Node => "node",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Language::Python => "code.py",
            Language::Bash => "code.sh",
            Language::Node => "code.js",
        }
    }
}

impl Interpreters {
    pub fn set(&mut self, language: Language, path: String) {
        self.paths.insert(language.name(), path);
    }

    pub fn get(&self, language: Language) -> Option<&str> {
        self.paths.get(language.name()).map(String::as_str)
    }

    /// The file to put the source in, relative to the scratch folder, and the command that runs it.
    pub fn command(
        &self,
        language: Language,
        scratch: &str,
        args: Vec<String>,
        watched: bool,
    ) -> Result<(String, Vec<String>)> {
        let interpreter = self.get(language).ok_or(Error::NoInterpreter {
            language: language.name(),
            problem: "it is not installed where the sandbox can see it".into(),
        })?;
        let file = format!("{scratch}/{}", language.file());
        let path = format!("/run/brig/{file}");
        let mut argv = vec![interpreter.to_owned()];
        match language {
            Language::Python => {
                let before = if watched { WATCHED } else { "" };
                argv.extend(["-c".into(), format!("{before}{PYTHON}"), path]);
            }
            Language::Bash => argv.push(path),
            Language::Node => argv.extend(["-e".into(), NODE.into(), path]),
        }
        argv.extend(args);
        Ok((file, argv))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_by_its_file_and_other_words_as_they_are() {
        let mut interpreters = Interpreters::default();
        for language in [Language::Python, Language::Node, Language::Bash] {
            interpreters.set(language, "/usr/bin/program".into());
        }
        for (language, watched, file) in [
            (Language::Python, true, "code.py"),
            (Language::Python, false, "code.py"),
            (Language::Node, true, "code.js"),
        ] {
            let arguments = vec!["-x".to_owned(), "y".to_owned()];
            let command = interpreters.command(language, "7", arguments, watched);
            let mut words = command.expect("a command").1;
            // A record reads no more than so much of each.
            words.iter_mut().for_each(|word| word.truncate(READ));
            assert_eq!(as_given(words), ["/usr/bin/program", file, "-x", "y"]);
        }
        let same = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(as_given(words.clone()), words);
        };
        same(&["python3", "-c", "import os", "/run/brig/7/code.py"]);
        same(&["python3", "-c", "import ", "/run/brig/7/code.py"]);
        same(&["python3", "-c", PYTHON, "/workspace/code.py"]);
        same(&["python3", "-c"]);
    }
}
