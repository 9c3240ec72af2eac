//! Finds calls in Python source code that start processes.
//!
//! This is advice and evidence, not a security boundary. It does not see through `getattr`, `exec`,
//! a function under another name, and many other ways. The sandbox enforces what must be enforced.

mod calls;
mod depth;

use ruff_python_parser::parse_module;

/// Longer code is not scanned.
const MAX_BYTES: usize = 1 << 20;
/// Stack for the parser and the visitors, for the deepest code that [`depth`] accepts.
const STACK: usize = 64 << 20;

/// What was found in code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// In the order of the code.
    pub findings: Vec<Finding>,
    /// Why the code could not be parsed, if it could not.
    pub unparsable: Option<String>,
}

/// A call, or an import of all names, that can start or look for processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// What was called, such as `os.system`.
    pub pattern: String,
    /// What it may do, for people to read.
    pub message: String,
}

impl Scan {
    /// The names that conditions see: what was called, or `unparsable`.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.findings.iter().map(|found| &*found.pattern).collect();
        names.sort_unstable();
        names.dedup();
        if self.unparsable.is_some() {
            names.push("unparsable");
        }
        names
    }

    fn unparsable(why: impl Into<String>) -> Self {
        Self {
            findings: Vec::new(),
            unparsable: Some(why.into()),
        }
    }
}

/// Looks for calls that start or look for processes.
pub fn scan_python(code: &[u8]) -> Scan {
    if code.len() > MAX_BYTES {
        return Scan::unparsable(format!("longer than {MAX_BYTES} bytes"));
    }
    let Ok(code) = str::from_utf8(code) else {
        return Scan::unparsable("not UTF-8");
    };
    let code = code.strip_prefix('\u{feff}').unwrap_or(code);
    if code.contains('\0') {
        return Scan::unparsable("a NUL character");
    }
    if depth::is_too_deep(code) {
        return Scan::unparsable("nested too deeply");
    }
    stacker::grow(STACK, || match parse_module(code) {
        Ok(parsed) => Scan {
            findings: calls::find(code, parsed.suite()),
            unparsable: None,
        },
        Err(error) => {
            let (line, column) = position(code, error.location.start().to_usize());
            Scan::unparsable(format!("line {line}, column {column}: {}", error.error))
        }
    })
}

/// Line and column of an offset.
fn position(code: &str, offset: usize) -> (u32, u32) {
    let before = code.get(..offset).unwrap_or(code);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (
        u32::try_from(line).unwrap_or(u32::MAX),
        u32::try_from(column).unwrap_or(u32::MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str) -> Vec<String> {
        let scan = scan_python(code.as_bytes());
        assert_eq!(scan.unparsable, None, "{code}");
        scan.findings
            .into_iter()
            .map(|found| found.pattern)
            .collect()
    }

    #[test]
    fn the_usual_ways_are_found() {
        let cases = [
            (
                "import subprocess\nsubprocess.run(['ls'])",
                "subprocess.run",
            ),
            ("import subprocess as sp\nsp.Popen('x')", "subprocess.Popen"),
            (
                "from subprocess import check_output as co\nco('x')",
                "subprocess.check_output",
            ),
            ("import os.path\nos.system('x')", "os.system"),
            ("os.execvpe('x', [], {})", "os.execvpe"),
            ("__import__('os').popen('x')", "os.popen"),
            ("importlib.import_module('pty').spawn('x')", "pty.spawn"),
            ("import shutil\nshutil.which('x')", "shutil.which"),
            ("from os import *", "os.*"),
            (
                "def f():\n    return [os.spawnl(1) for _ in x]",
                "os.spawnl",
            ),
            ("f'{os.system(1)}'", "os.system"),
            ("async def f(): await x(os.system('y'))", "os.system"),
            // Used before it is imported.
            (
                "def f(): sp.call('x')\nimport subprocess as sp",
                "subprocess.call",
            ),
        ];
        for (code, expected) in cases {
            assert_eq!(names(code), [expected], "{code}");
        }
    }

    #[test]
    fn harmless_code_is_left_alone() {
        for code in [
            "",
            "print('os.system(1)')  # subprocess.run()",
            "import os\nprint(os.getcwd())",
            "from . import system\nsystem('x')",
            "model.run()",
            "import subprocess",
            "type X = int\nmatch x:\n    case [1, *_]: pass\nprint(f'{x!r:{y}}')",
            "def f[T](x: T) -> T: return x",
        ] {
            assert!(names(code).is_empty(), "{code}");
        }
    }

    #[test]
    fn a_finding_has_its_place_and_agts_words() {
        let scan =
            scan_python("x = 1\nif x:\n    é = os.system('id')\nfrom os import *".as_bytes());
        let first = &scan.findings[0];
        assert_eq!((first.line, first.column), (3, 9));
        assert_eq!(
            scan.findings[0].message,
            "os.system may spawn or discover subprocesses inside the sandbox"
        );
        assert_eq!(
            scan.findings[1].message,
            "Wildcard import from os can expose process-spawning APIs"
        );
    }

    #[test]
    fn what_can_not_be_parsed_is_reported_as_such() {
        for code in [
            &b"def"[..],
            b"x = (",
            b"\xff\xfe",
            b"'\xed\xa0\x80'",
            b"a\0b",
            b"print 'x'",
            b"class type X Y",
        ] {
            let scan = scan_python(code);
            assert!(
                scan.unparsable.is_some() && scan.findings.is_empty(),
                "{code:?}"
            );
            assert_eq!(scan.names(), ["unparsable"]);
        }
    }

    #[test]
    fn no_depth_is_deep_enough_to_fall_into() {
        let many = 200_000;
        let deep = [
            "(".repeat(many),
            "[".repeat(many),
            "{".repeat(many),
            format!("{}x", "-".repeat(many)),
            format!("{}x", "not ".repeat(many)),
            format!("{}x", "lambda: ".repeat(many)),
            format!("x{}", ".a".repeat(many)),
            format!("x{}", "()".repeat(many)),
            format!("x{}", "[0]".repeat(many)),
            format!("x{}", " + x".repeat(many)),
            format!("x{}", " ** x".repeat(many)),
            format!("x{}", " if x else x".repeat(many / 2)),
            format!("{}x", "await ".repeat(many)),
            (0..2_000)
                .map(|i| format!("{}if x:\n", " ".repeat(i % 400)))
                .collect(),
            "f'{".repeat(many),
            format!("x{}", " = x".repeat(many)),
            format!("match x:\n    case {}", "[".repeat(many)),
            format!("{}x", "*".repeat(many)),
            format!("@{}x", "(".repeat(many)),
            "if x:\n ".repeat(many),
        ];
        for code in deep {
            let start: String = code.chars().take(20).collect();
            let scan = scan_python(code.as_bytes());
            assert!(scan.findings.is_empty(), "{start}");
        }
        // Just below the limit, the parser and the walk must have room enough.
        let depth = depth::MOST as usize - 10;
        for code in [
            format!("{}x", "-".repeat(depth)),
            format!("x{}", ".a".repeat(depth / 2)),
            format!("{}x", "lambda: ".repeat(depth / 2)),
            format!("{}{}", "(".repeat(depth / 2), ")".repeat(depth / 2)),
            format!("{}{}", "[".repeat(depth / 2), "]".repeat(depth / 2)),
            format!("x{}", " ** x".repeat(depth / 2)),
            format!("x{}", " if x else x".repeat(depth / 4)),
            format!("{}x{}", "f(".repeat(depth / 2), ")".repeat(depth / 2)),
        ] {
            let start: String = code.chars().take(20).collect();
            assert_eq!(scan_python(code.as_bytes()).unparsable, None, "{start}");
        }
        // What is long without being deep is read.
        let flat = format!(
            "x = [{}]\ny = {}",
            "1, ".repeat(50_000),
            "'a' ".repeat(5_000)
        );
        assert_eq!(scan_python(flat.as_bytes()).unparsable, None);
    }
}
