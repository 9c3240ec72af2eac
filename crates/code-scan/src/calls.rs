//! Which functions a piece of Python calls, under whatever names it imported them.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprCall, Stmt};
use ruff_text_size::Ranged;

use super::{Finding, position};

const CALLS: &[(&str, &[&str])] = &[
    (
        "subprocess",
        &[
            "Popen",
            "call",
            "check_call",
            "check_output",
            "getoutput",
            "getstatusoutput",
            "run",
        ],
    ),
    (
        "os",
        &[
            "execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe",
            "popen", "spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp",
            "spawnvpe", "system",
        ],
    ),
    ("pty", &["spawn"]),
    ("shutil", &["which"]),
];

pub(super) fn find(code: &str, body: &[Stmt]) -> Vec<Finding> {
    let mut finder = Finder {
        code,
        imports: Imports::default(),
        findings: Vec::new(),
    };
    // First all imports: a function may use what is imported below it.
    finder.imports.visit_body(body);
    finder.visit_body(body);
    finder
        .findings
        .sort_by_key(|found| (found.line, found.column));
    finder.findings
}

/// What imported names refer to. One name may refer to several things in turn.
#[derive(Default)]
struct Imports {
    modules: BTreeMap<String, BTreeSet<&'static str>>,
    functions: BTreeMap<String, BTreeSet<(&'static str, &'static str)>>,
}

fn module(dotted: &str) -> Option<(&'static str, &'static [&'static str])> {
    let root = dotted.split('.').next().unwrap_or_default();
    CALLS.iter().find(|(name, _)| *name == root).copied()
}

impl<'a> Visitor<'a> for Imports {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(import) => {
                for alias in &import.names {
                    if let Some((name, _)) = module(alias.name.as_str()) {
                        let local = alias.asname.as_ref().map_or(name, |local| local.as_str());
                        self.modules.entry(local.into()).or_default().insert(name);
                    }
                }
            }
            Stmt::ImportFrom(import) => {
                let Some((name, functions)) = import
                    .module
                    .as_ref()
                    .and_then(|from| module(from.as_str()))
                else {
                    return;
                };
                for alias in &import.names {
                    let known = functions
                        .iter()
                        .find(|known| **known == alias.name.as_str());
                    if let Some(function) = known {
                        let local = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                        self.functions
                            .entry(local.into())
                            .or_default()
                            .insert((name, function));
                    }
                }
            }
            _ => walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, _: &'a Expr) {
        // No expression imports anything.
    }
}

struct Finder<'c> {
    code: &'c str,
    imports: Imports,
    findings: Vec<Finding>,
}

impl Finder<'_> {
    fn add(&mut self, at: &impl Ranged, pattern: String, message: String) {
        let (line, column) = position(self.code, at.start().to_usize());
        self.findings.push(Finding {
            line,
            column,
            pattern,
            message,
        });
    }

    fn call(&mut self, call: &ExprCall) {
        let mut patterns = Vec::new();
        match &*call.func {
            Expr::Name(name) => {
                let known = self.imports.functions.get(name.id.as_str());
                patterns.extend(
                    known
                        .into_iter()
                        .flatten()
                        .map(|(module, function)| format!("{module}.{function}")),
                );
            }
            Expr::Attribute(attribute) => {
                for name in self.modules(&attribute.value) {
                    let Some((name, functions)) = CALLS.iter().find(|(known, _)| *known == name)
                    else {
                        continue;
                    };
                    if functions.contains(&attribute.attr.as_str()) {
                        patterns.push(format!("{name}.{}", attribute.attr));
                    }
                }
            }
            _ => {}
        }
        for pattern in patterns {
            let message =
                format!("{pattern} may spawn or discover subprocesses inside the sandbox");
            self.add(call, pattern, message);
        }
    }

    /// The modules that an expression may refer to.
    fn modules(&self, expr: &Expr) -> Vec<String> {
        match expr {
            Expr::Name(name) => match self.imports.modules.get(name.id.as_str()) {
                Some(modules) => modules.iter().map(ToString::to_string).collect(),
                None => vec![name.id.to_string()],
            },
            Expr::Call(call) => imported(call).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// `__import__("m")`, `importlib.import_module("m")`.
fn imported(call: &ExprCall) -> Option<String> {
    let imports = match &*call.func {
        Expr::Name(name) => name.id.as_str() == "__import__",
        Expr::Attribute(attribute) => {
            attribute.attr.as_str() == "import_module"
                && matches!(&*attribute.value, Expr::Name(name) if name.id.as_str() == "importlib")
        }
        _ => false,
    };
    match call.arguments.args.first() {
        Some(Expr::StringLiteral(text)) if imports => {
            let root = text.value.to_str().split('.').next();
            root.map(str::to_owned)
        }
        _ => None,
    }
}

impl<'a> Visitor<'a> for Finder<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::ImportFrom(import) = stmt
            && let Some((name, _)) = import
                .module
                .as_ref()
                .and_then(|from| module(from.as_str()))
            && import.names.iter().any(|alias| alias.name.as_str() == "*")
        {
            let message = format!("Wildcard import from {name} can expose process-spawning APIs");
            self.add(import, format!("{name}.*"), message);
        }
        walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Call(call) = expr {
            self.call(call);
        }
        walk_expr(self, expr);
    }
}
