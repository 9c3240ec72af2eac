//! The lists of commands of a policy. An entry is a name, a path, a name with its first arguments, or
//! a named set.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use brig_reason::ReasonCode;
use brig_schema::{Fault, nearest, quoted};

use crate::document::Document;

const SETS: &str = include_str!("../data/commands.txt");

/// One entry of a list of commands, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommandRule {
    /// A program of this name, in any directory.
    Name(String),
    /// The program at this absolute path.
    Path(String),
    /// A program, by name or path, when these are its first arguments. Arguments
    /// can only be observed: a program may change them after the check.
    Arguments(String, Vec<String>),
    /// Many names at once, such as `@network`.
    Set(String),
}

impl fmt::Display for CommandRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandRule::Name(text) | CommandRule::Path(text) | CommandRule::Set(text) => {
                f.write_str(text)
            }
            CommandRule::Arguments(program, arguments) => {
                write!(f, "{program} {}", arguments.join(" "))
            }
        }
    }
}

impl CommandRule {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let fault = |problem: &str| {
            Fault::new(
                ReasonCode::PolicyCommand,
                format!("{} is not a valid command: {problem}", quoted(text)),
            )
        };
        if text.trim().is_empty() {
            return Err(Fault::new(ReasonCode::PolicyEmpty, "an empty command name")
                .fix("remove the entry"));
        }
        if text.contains(',') {
            return Err(Fault::new(
                ReasonCode::PolicyName,
                format!("{} contains more than one entry", quoted(text)),
            )
            .fix("write one entry for each"));
        }
        if text.chars().any(is_unseen) || text.trim() != text || text.contains("  ") {
            let problem =
                "it contains characters that can't be seen, or more than one space between words";
            return Err(fault(problem).fix("write the program and its first arguments"));
        }
        let mut words = text.split(' ').map(str::to_owned);
        let program = words.next().unwrap_or_default();
        let arguments: Vec<String> = words.collect();
        if program.contains('/') && !program.starts_with('/') {
            return Err(fault("it is a relative path").fix("write the name, or the absolute path"));
        }
        if program.ends_with('/') {
            return Err(fault("it is a directory").fix("name the program"));
        }
        // Paths are compared as they are written.
        let shortest = lexical(&program);
        if shortest != program {
            let fix = format!("write {}", quoted(&shortest));
            return Err(fault("its path contains `..`, `.` or `//`").fix(fix));
        }
        if program.starts_with('@') {
            return Self::set(program, &arguments);
        }
        Ok(match arguments.as_slice() {
            [] if program.starts_with('/') => Self::Path(program),
            [] => Self::Name(program),
            _ => Self::Arguments(program, arguments),
        })
    }

    fn set(name: String, arguments: &[String]) -> Result<Self, Fault> {
        if arguments.is_empty() && sets().contains_key(name.as_str()) {
            return Ok(Self::Set(name));
        }
        let fault = Fault::new(
            ReasonCode::PolicyCommand,
            format!("there is no command set {}", quoted(&name)),
        );
        let known = || sets().keys().copied();
        Err(match nearest(&name, known()) {
            Some(meant) => fault.fix(format!("did you mean `{meant}`?")),
            None => fault.fix(format!(
                "known sets are {}",
                known().collect::<Vec<_>>().join(", ")
            )),
        })
    }
}

/// The named sets, with the programs of each.
pub fn command_sets() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    sets().iter().map(|(name, all)| (*name, all.as_slice()))
}

fn sets() -> &'static BTreeMap<&'static str, Vec<&'static str>> {
    static READ: OnceLock<BTreeMap<&'static str, Vec<&'static str>>> = OnceLock::new();
    READ.get_or_init(|| {
        let lines = SETS.lines().filter(|line| !line.starts_with('#'));
        let mut written: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut open = false;
        for line in lines {
            match written.last_mut() {
                _ if line.is_empty() => open = false,
                Some((_, words)) if open => words.extend(line.split_whitespace()),
                _ => {
                    written.push((line, Vec::new()));
                    open = true;
                }
            }
        }
        let own = |name: &str| written.iter().find(|(other, _)| *other == name);
        let whole = |words: &[&'static str]| -> Vec<&'static str> {
            let mut all: Vec<&str> = Vec::new();
            for word in words {
                match own(word) {
                    Some((_, inner)) => all.extend(inner),
                    None => all.push(word),
                }
            }
            all.sort_unstable();
            all.dedup();
            all
        };
        written
            .iter()
            .map(|(name, words)| (*name, whole(words)))
            .collect()
    })
}

/// Whether the lists of commands are enforced, or violations are only recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandMode {
    /// What the lists forbid is denied. An entry with arguments denies only a requested command,
    /// whose arguments are known for certain; otherwise it is observed.
    #[default]
    Enforce,
    /// What the lists forbid is allowed, and recorded.
    Observe,
}

/// Whether a name with this character looks like another name: it can't be seen, or looks like a space.
pub(crate) fn is_unseen(c: char) -> bool {
    brig_hosts::is_invisible(c) || c.is_whitespace() && c != ' '
}

impl CommandMode {
    pub(crate) const NAMES: &[&str] = &["enforce", "observe"];

    /// As `command_mode` is written in a policy: `enforce` or `observe`.
    pub fn name(self) -> &'static str {
        match self {
            CommandMode::Enforce => "enforce",
            CommandMode::Observe => "observe",
        }
    }

    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "observe" => CommandMode::Observe,
            _ => CommandMode::Enforce,
        }
    }
}

/// What one word of a list is about, once sets are written out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommandEntry {
    /// A name, or an absolute path.
    pub program: Arc<str>,
    /// Only with these first arguments; then it can only be observed.
    pub arguments: Vec<String>,
    /// As written in the policy, such as `@network`.
    pub rule: Arc<str>,
}

impl CommandEntry {
    pub(crate) fn all_of(rule: &CommandRule) -> Vec<Self> {
        let written: Arc<str> = rule.to_string().into();
        let entry = |program: &str, arguments: &[String]| Self {
            program: program.into(),
            arguments: arguments.to_vec(),
            rule: Arc::clone(&written),
        };
        match rule {
            CommandRule::Name(program) | CommandRule::Path(program) => vec![entry(program, &[])],
            CommandRule::Arguments(program, arguments) => vec![entry(program, arguments)],
            CommandRule::Set(name) => {
                let names = sets().get(name.as_str());
                let names = names.into_iter().flatten();
                names.map(|name| entry(name, &[])).collect()
            }
        }
    }

    /// One rule, written out.
    pub(crate) fn text(&self) -> String {
        let words =
            std::iter::once(&*self.program).chain(self.arguments.iter().map(String::as_str));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Whether it names a program by its path.
    pub fn is_path(&self) -> bool {
        self.program.starts_with('/')
    }

    /// Whether it is about a program that goes by this name or path.
    pub fn is_about(&self, program: &str) -> bool {
        if self.is_path() {
            return *self.program == *program;
        }
        program.rsplit('/').next() == Some(&*self.program)
    }

    /// Whether a bare name may turn out to be the very file that it names.
    fn may_be(&self, name: &str) -> bool {
        !name.contains('/') && self.is_path() && self.program.rsplit('/').next() == Some(name)
    }

    /// The same, with the arguments that the program is given.
    pub fn matches(&self, program: &str, arguments: &[String]) -> bool {
        self.is_about(program) && arguments.starts_with(&self.arguments)
    }
}

/// One list of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandList {
    /// The name of the policy that has the list.
    pub policy: String,
    /// Whether this list is enforced or only observed.
    pub mode: CommandMode,
    /// The list with its sets written out, in the order of the policy.
    pub entries: Vec<CommandEntry>,
}

impl CommandList {
    fn of<'a>(document: &Document, rules: impl Iterator<Item = &'a CommandRule>) -> Self {
        Self {
            policy: document.name().to_owned(),
            mode: document.command_mode(),
            entries: rules.flat_map(CommandEntry::all_of).collect(),
        }
    }

    /// The entry that a program with these arguments is on the list by.
    pub fn find(&self, program: &str, arguments: &[String]) -> Option<&CommandEntry> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.matches(program, arguments))
    }
}

/// The command lists of all policies of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// A program may be on none of them. Policies without a denylist are left out.
    pub denied: Vec<CommandList>,
    /// A program has to be on every one of them.
    pub allowed: Vec<CommandList>,
}

impl Commands {
    pub(crate) fn of<'a>(documents: impl Iterator<Item = &'a Document>) -> Self {
        let mut all = Self::default();
        for document in documents {
            let denied = document.command_denylist();
            if !denied.is_empty() {
                let rules = denied.iter().map(|given| &given.value);
                all.denied.push(CommandList::of(document, rules));
            }
            if let Some(allowed) = document.command_allowlist() {
                let rules = allowed.iter().map(|given| &given.value);
                all.allowed.push(CommandList::of(document, rules));
            }
        }
        all
    }

    /// Whether no policy has a list of commands, so that every program may be run.
    pub fn is_empty(&self) -> bool {
        self.denied.is_empty() && self.allowed.is_empty()
    }

    /// The policy whose lists forbid a command that is known for certain, and why.
    pub fn forbids(&self, argv: &[String]) -> Option<String> {
        let (program, arguments) = argv.split_first()?;
        let path = lexical(program);
        let enforced = |list: &&CommandList| list.mode == CommandMode::Enforce;
        for list in self.denied.iter().filter(enforced) {
            let mut entries = list.entries.iter();
            let found = entries.find(|entry| {
                let named = entry.is_about(&path) || entry.may_be(&path);
                named && arguments.starts_with(&entry.arguments)
            });
            if let Some(entry) = found {
                let (rule, policy) = (&entry.rule, &list.policy);
                let by = if *rule == entry.program {
                    String::new()
                } else {
                    format!(" (`{rule}`)")
                };
                return Some(format!(
                    "`{program}` is on the command denylist of policy `{policy}`{by}"
                ));
            }
        }
        let mut lists = self.allowed.iter().filter(enforced);
        let list = lists.find(|list| list.find(&path, arguments).is_none())?;
        Some(format!(
            "`{program}` is not on the command allowlist of policy `{}`",
            list.policy
        ))
    }
}

/// Without empty parts and dots, which lead to the same file.
fn lexical(path: &str) -> String {
    if !path.contains('/') {
        return path.to_owned();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "./" };
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn sets_are_written_out_and_the_default_holds_two_of_them() {
        let all: BTreeMap<_, _> = command_sets().collect();
        for (set, program) in [
            ("@cloud-cli", "az"),
            ("@network", "curl"),
            ("@package-managers", "pip"),
            ("@shells", "bash"),
            ("@compilers", "gcc"),
            ("@default", "kubectl"),
            ("@default", "wget"),
        ] {
            assert!(all[set].contains(&program), "{set} {program}");
        }
        assert_eq!(all.len(), 6);
        assert!(!all["@default"].contains(&"bash"));
        let odd = |name: &&str| name.starts_with('@') || name.contains('/');
        assert!(!all.values().copied().flatten().any(odd));
    }

    #[test]
    fn a_command_is_a_name_a_path_a_name_with_arguments_or_a_set() {
        let parse = |text| CommandRule::parse(text).expect("valid");
        assert_eq!(parse("az"), CommandRule::Name("az".into()));
        assert_eq!(parse("/bin/az"), CommandRule::Path("/bin/az".into()));
        assert_eq!(parse("@shells"), CommandRule::Set("@shells".into()));
        let push = CommandRule::Arguments("git".into(), vec!["push".into()]);
        assert_eq!(parse("git push"), push);
        assert_eq!(push.to_string(), "git push");
        for wrong in [
            "",
            " ",
            "bin/az",
            "/bin/",
            "a, b",
            "a  b",
            "@nothing",
            "@shells x",
            "a\n",
            "\u{200b}az",
            "git\u{a0}push",
            "az\u{feff} login",
            "/tmp/../tmp/az",
            "/tmp/./az",
            "//tmp/az",
        ] {
            assert!(CommandRule::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn arguments_are_looked_at_from_the_first() {
        let rule = CommandRule::parse("git push").expect("valid");
        let entry = &CommandEntry::all_of(&rule)[0];
        assert!(entry.matches("/usr/bin/git", &words("push origin")));
        assert!(!entry.matches("/usr/bin/git", &words("pull")));
        assert!(!entry.matches("/usr/bin/got", &words("push")));
    }
}
