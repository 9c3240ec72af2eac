//! How source code reaches an interpreter: as a file, never as an argument.

use std::collections::BTreeMap;

use brig_sandbox::{Error, Language, Result};

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

/// Before it, for code that has a name of its own.
const NAMED: &str = "__file__ = __import__('sys').argv[1]\n";

/// The same, but as `python FILE` runs a file: the second argument is the path that the code knows itself
/// by, and its directory is first on the module path. The text is still the one that was decided on, and
/// not what is in that directory now.
const PYTHON_SCRIPT: &str = "\
import sys
sys.argv.pop(0)
def c(kind, error, at, show=sys.excepthook):
    if at and not at.tb_frame.f_back:
        at = at.tb_next
        error.with_traceback(at)
    show(kind, error, at)
sys.excepthook = c
with open(sys.argv.pop(0), 'rb') as c:
    __file__ = sys.argv[0]
    c = compile(c.read(), __file__, 'exec')
sys.path[0] = __file__.rpartition('/')[0] or '/'
del sys
exec(globals().pop('c'))
";

/// A program that does not exist. A failed `execve` of it reports the line of code that starts the next program.
pub const CALLER: &str = "/run/brig/.caller";

/// The same, and reports the line of code that starts a program. Code can bypass it, so it is information and
/// not enforcement.
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

/// The same for a module with the path of the second argument, which finds others beside it.
const NODE_SCRIPT: &str = "{const s=process.argv.splice(1,1)[0],f=process.argv[1],M=require('module'),\
    m=new M(f,null);m.filename=f;m.paths=M._nodeModulePaths(require('path').dirname(f));\
    process.mainModule=m;\
    m._compile(require('fs').readFileSync(s,'utf8').replace(/^#!.*/,''),f);m.loaded=true}";

/// An argument of this length may have been cut.
const READ: usize = 1024;

/// The arguments of a program, as its caller knows them: source code is shown by its file, without the code that
/// runs it.
pub fn as_given(mut words: Vec<String>) -> Vec<String> {
    let hooked = |text: &str| format!("{WATCHED}{text}");
    let named = format!("{NAMED}{PYTHON}");
    let is = |text: &str, own: &str| own == text || (text.len() >= READ && own.starts_with(text));
    let any = |text: &str, own: &[&str]| own.iter().any(|own| is(text, own));
    let [_, option, text, file, ..] = &*words else {
        return words;
    };
    if !matches!(&**option, "-c" | "-e") || !file.starts_with("/run/brig/") {
        return words;
    }
    // Cut texts may begin alike, but only a script is followed by the path of the same file elsewhere.
    let name = file.rsplit('/').next().unwrap_or_default();
    let path = words
        .get(4)
        .filter(|path| path.starts_with('/') && path.ends_with(name));
    if let Some(path) = path.cloned()
        && any(text, &[&hooked(PYTHON_SCRIPT), PYTHON_SCRIPT, NODE_SCRIPT])
    {
        words.splice(1..5, [path]);
    } else if any(
        text,
        &[PYTHON, NODE, &named, &hooked(PYTHON), &hooked(&named)],
    ) {
        let name = name.to_owned();
        words.splice(1..4, [name]);
    }
    words
}

impl Interpreters {
    pub fn set(&mut self, language: Language, path: String) {
        self.paths.insert(language.name(), path);
    }

    pub fn get(&self, language: Language) -> Option<&str> {
        self.paths.get(language.name()).map(String::as_str)
    }

    /// The file to put the source in, relative to the scratch folder, and the command that runs it.
    /// `script` is a file name, or an absolute path that the code is to know itself by.
    pub fn command(
        &self,
        language: Language,
        scratch: &str,
        script: Option<&str>,
        args: Vec<String>,
        watched: bool,
    ) -> Result<(String, Vec<String>)> {
        let interpreter = self.get(language).ok_or(Error::NoInterpreter {
            language: language.name(),
            problem: "it is not installed in a place that the sandbox can see".into(),
        })?;
        let name = script.and_then(|script| script.rsplit('/').next());
        let file = match name {
            Some(name) => format!("{scratch}/{name}"),
            None => format!("{scratch}/code.{}", language.extension()),
        };
        let path = format!("/run/brig/{file}");
        let named = script.is_some();
        let script = script.filter(|script| script.starts_with('/'));
        let mut argv = vec![interpreter.to_owned()];
        match language {
            Language::Python => {
                let before = if watched { WATCHED } else { "" };
                let run = match script {
                    Some(_) => PYTHON_SCRIPT.to_owned(),
                    None if named => format!("{NAMED}{PYTHON}"),
                    None => PYTHON.to_owned(),
                };
                argv.extend(["-c".into(), format!("{before}{run}"), path]);
            }
            Language::Node => {
                let run = script.map_or(NODE, |_| NODE_SCRIPT);
                argv.extend(["-e".into(), run.into(), path]);
            }
            // Bash has no way to run one file under the path of another: see `beside`.
            _ => argv.push(path),
        }
        if language != Language::Bash {
            argv.extend(script.map(str::to_owned));
        }
        argv.extend(args);
        Ok((file, argv))
    }
}

/// The directory of a script that can't be run under its path. What is in it is linked beside the copy, where
/// `$0` and `BASH_SOURCE` lead to.
pub(super) fn beside(language: Language, script: Option<&str>) -> Option<String> {
    let (directory, _) = script?.rsplit_once('/')?;
    let directory = if directory.is_empty() { "/" } else { directory };
    (language == Language::Bash).then(|| directory.to_owned())
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
            for (script, shown) in [
                (None, file),
                (Some("app.x"), "app.x"),
                (Some("/script/app.x"), "/script/app.x"),
            ] {
                let arguments = arguments.clone();
                let command = interpreters.command(language, "7", script, arguments, watched);
                let mut words = command.expect("a command").1;
                // A record reads no more than so much of each.
                words.iter_mut().for_each(|word| word.truncate(READ));
                assert_eq!(as_given(words), ["/usr/bin/program", shown, "-x", "y"]);
            }
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
