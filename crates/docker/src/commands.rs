//! Lists of commands in containers. Denied files of the image have stand-ins in their place, which
//! nobody inside can change; what is started is told by the guest, and judged here for the record.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brig_audit::Command;
use brig_policy::Commands;
use brig_sandbox::commands::{Root, Scan, scan};
use brig_sandbox::link::{self, CALLER, as_given};
use brig_sandbox::{Error, Plan, Result};
use brig_wire::{Denied, Exec};

use crate::apparmor::{Kernel, Profile};
use crate::archive;
use crate::derived::NAMES;
use crate::image::Image;
use crate::outline::Outline;
use crate::programs;

/// Where nothing of the image is seen.
const COVERED: [&str; 7] = [
    "/workspace",
    "/tmp",
    "/run/brig",
    "/proc",
    "/sys",
    "/dev",
    "/.brig",
];
/// Processes of one execution that are remembered.
const REMEMBERED: usize = 4096;
/// How far up the tree a line of code is looked for.
const GENERATIONS: usize = 8;

/// What the lists of a plan mean in one image.
#[derive(Debug)]
pub struct Lists {
    commands: Commands,
    scan: Arc<Scan>,
    denied: Option<Denied>,
    held: Option<Held>,
    lines: Mutex<Lines>,
}

/// The profile that holds them, beside the stand-ins.
#[derive(Debug)]
struct Held {
    profile: String,
    /// Where no denied name may start.
    writable: Vec<String>,
}

/// Lines of code that interpreters told of, by process, and who is whose child.
#[derive(Debug, Default)]
struct Lines {
    told: HashMap<u32, String>,
    above: HashMap<u32, u32>,
}

impl Lists {
    pub fn read(plan: &Plan, image: &Image, outline: &Outline) -> Result<Self> {
        let commands = plan.commands().cloned().unwrap_or_default();
        let path = programs::path(image).split(':');
        let root = Root::open(outline.path(), path, None)
            .map_err(|error| Error::io("look for commands", error))?
            .kept_in(plan.state().map(|state| state.join("commands")));
        let scan = scan(&commands, &root);
        let denied = stand_ins(&scan)?;
        Ok(Self {
            commands,
            scan,
            denied,
            held: None,
            lines: Mutex::default(),
        })
    }

    /// Has the kernel hold them too. An allowlist is held by nothing else.
    pub async fn hold(&mut self, kernel: &Kernel, writable: Vec<String>) -> Result<()> {
        let scan = &*self.scan;
        if scan.denied.is_empty() && scan.names.is_empty() && scan.allowed.is_none() {
            return Ok(());
        }
        let profile = Profile::of(scan, &self.stand_ins(), &writable);
        match kernel.load(&profile).await {
            Ok(()) => {
                let profile = profile.name;
                self.held = Some(Held { profile, writable });
                Ok(())
            }
            Err(error) if scan.allowed.is_some() => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// The profile to start under.
    pub fn profile(&self) -> Option<&str> {
        Some(&self.held.as_ref()?.profile)
    }

    fn stand_ins(&self) -> Vec<PathBuf> {
        let Some(denied) = &self.denied else {
            return Vec::new();
        };
        let covered = denied.covered.iter().map(PathBuf::from);
        let names = denied.names.iter().map(|name| Path::new(NAMES).join(name));
        covered.chain(names).collect()
    }

    /// What stand-ins take the place of.
    pub fn denied(&self) -> Option<&Denied> {
        self.denied.as_ref()
    }

    fn is_stand_in(&self, path: &str) -> bool {
        self.denied.as_ref().is_some_and(|denied| {
            Path::new(path).starts_with(&denied.folder)
                || denied.covered.iter().any(|covered| covered == path)
        })
    }

    fn rule_for(&self, path: &str) -> Option<Arc<str>> {
        let path = Path::new(path);
        let by_path = self.scan.denied.get(path).map(|denied| &denied.rule);
        let name = || self.scan.names.get(path.file_name()?.to_str()?);
        by_path.or_else(name).cloned()
    }

    /// A stand-in has started and says under which words.
    fn stood_in(&self, stand_in: &str, words: Vec<String>, line: Option<String>) -> Command {
        let name = Path::new(stand_in)
            .strip_prefix(NAMES)
            .ok()
            .and_then(Path::to_str);
        let covered = |name: &str| {
            let mut denied = self.scan.denied.iter();
            let found = denied.find(|(_, denied)| denied.name == name);
            found.map(|(path, _)| path.display().to_string())
        };
        let (program, path) = match name {
            Some(name) => (name.to_owned(), covered(name)),
            None => (stand_in.to_owned(), Some(stand_in.to_owned())),
        };
        Command {
            allowed: false,
            code: "command.denied".into(),
            rule: self.rule_for(stand_in).map(|rule| rule.to_string()),
            program,
            path,
            arguments: as_given(words),
            parent: None,
            caller: line,
        }
    }

    /// What the kernel will not start.
    fn held(&self, exec: &Exec) -> Option<(&'static str, Option<Arc<str>>)> {
        let held = self.held.as_ref()?;
        let path = Path::new(exec.path.as_deref()?);
        let name = || {
            let inside = held.writable.iter().filter(|folder| *folder != "/");
            let inside = inside.into_iter().any(|folder| path.starts_with(folder));
            let name = path.file_name()?.to_str()?;
            self.scan.names.get(name).filter(|_| inside).cloned()
        };
        let denied = self.scan.denied.get(path).map(|denied| denied.rule.clone());
        if let Some(rule) = denied.or_else(name) {
            return Some(("command.denied", Some(rule)));
        }
        let allowed = self.scan.allowed.as_ref()?;
        (!allowed.starts(path)).then_some(("command.not-allowed", None))
    }

    /// Rules that can only be observed, and those that are not to be held.
    fn observed(&self, exec: &Exec) -> Option<(&'static str, Option<Arc<str>>)> {
        let arguments = exec.words.get(1..).unwrap_or_default();
        let names = [Some(exec.program.as_str()), exec.path.as_deref()];
        let find = |list: &brig_policy::CommandList| {
            let mut names = names.into_iter().flatten();
            names.find_map(|name| list.find(name, arguments).map(|entry| entry.rule.clone()))
        };
        let mut denied = self.commands.denied.iter();
        if let Some(rule) = denied.find_map(find) {
            return Some(("command.observed", Some(rule)));
        }
        let unlisted = self
            .commands
            .allowed
            .iter()
            .any(|list| find(list).is_none());
        unlisted.then_some(("command.observed", None))
    }
}

impl link::Judge for Lists {
    fn judge(&self, exec: Exec) -> Option<Command> {
        let line = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.note(&exec);
            if exec.program == CALLER {
                return None;
            }
            lines.of(exec.process)
        };
        // A stand-in, or a copy of one, which asks for what nobody can start.
        if let Some(running) = exec.running.as_deref()
            && (self.is_stand_in(running) || exec.program == "/")
        {
            return Some(self.stood_in(running, exec.words, line));
        }
        if exec
            .path
            .as_deref()
            .is_some_and(|path| self.is_stand_in(path))
        {
            // It will say so itself.
            return None;
        }
        let held = self.held(&exec);
        let refused = exec.refused || held.is_some();
        let (code, rule) = if let Some(held) = held {
            held
        } else if exec.refused {
            let path = exec.path.as_deref();
            let rule = self.rule_for(&exec.program);
            ("command.denied", rule.or_else(|| self.rule_for(path?)))
        } else if exec.path.is_none() && exec.program.contains('/') && exec.running.is_some() {
            // There is no such program, and nobody minds.
            return None;
        } else {
            self.observed(&exec).unwrap_or(("command.allowed", None))
        };
        Some(Command {
            allowed: !refused,
            code: code.into(),
            rule: rule.map(|rule| rule.to_string()),
            program: exec.program,
            path: exec.path,
            arguments: as_given(exec.words),
            parent: exec.running,
            caller: line,
        })
    }
}

impl Lines {
    fn note(&mut self, exec: &Exec) {
        if self.above.len() >= REMEMBERED {
            self.above.clear();
            self.told.clear();
        }
        self.above.insert(exec.process, exec.parent);
        if exec.program == CALLER
            && let Some(line) = exec.words.first()
        {
            self.told.insert(exec.process, line.clone());
        }
    }

    fn of(&self, process: u32) -> Option<String> {
        let mut at = process;
        for _ in 0..GENERATIONS {
            if let Some(line) = self.told.get(&at) {
                return Some(line.clone());
            }
            at = *self.above.get(&at)?;
        }
        None
    }
}

/// A path that no stand-in can be put at can't be denied.
fn stand_ins(scan: &Scan) -> Result<Option<Denied>> {
    let seen = |path: &&Path| !COVERED.iter().any(|covered| path.starts_with(covered));
    let paths = scan.denied.keys().map(|path| path.as_path()).filter(seen);
    let covered: Vec<String> = paths
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let names: Vec<String> = scan.names.keys().cloned().collect();
    if covered.is_empty() && names.is_empty() {
        return Ok(None);
    }
    let in_folder = names.iter().map(|name| format!("{NAMES}/{name}"));
    if let Some(path) = covered
        .iter()
        .cloned()
        .chain(in_folder)
        .find(|path| !archive::fits(path))
    {
        return Err(Error::InvalidConfig {
            what: "command_denylist",
            problem: format!("`{}` is too long for an image", path.escape_debug()),
        });
    }
    Ok(Some(Denied {
        shim: 0,
        folder: NAMES.into(),
        names,
        covered,
    }))
}

#[cfg(test)]
mod tests;
