//! How source code reaches an interpreter: as a file, never as an argument.

use std::collections::BTreeMap;

use crate::{Error, Language, Result};

/// Where the interpreters are inside the sandbox.
#[derive(Clone, Debug, Default)]
pub struct Interpreters {
    paths: BTreeMap<&'static str, String>,
}

/// Runs the file named by the first argument as `python -c` would run its text: the workspace is
/// first on the module path, and tracebacks show the file's lines.
const PYTHON: &str = "\
import sys
sys.argv.pop(0)
with open(sys.argv[0], 'rb') as c:
    c = compile(c.read(), sys.argv[0], 'exec')
del sys
exec(globals().pop('c'))
";

const NODE: &str = "const f=process.argv[1];\
    require('vm').runInThisContext(require('fs').readFileSync(f,'utf8'),{filename:f})";

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
    ) -> Result<(String, Vec<String>)> {
        let interpreter = self.get(language).ok_or(Error::NoInterpreter {
            language: language.name(),
            problem: "it is not installed where the sandbox can see it".into(),
        })?;
        let file = format!("{scratch}/{}", language.file());
        let path = format!("/run/brig/{file}");
        let mut argv = vec![interpreter.to_owned()];
        match language {
            Language::Python => argv.extend(["-c".into(), PYTHON.into(), path]),
            Language::Bash => argv.push(path),
            Language::Node => argv.extend(["-e".into(), NODE.into(), path]),
        }
        argv.extend(args);
        Ok((file, argv))
    }
}
