//! Command lists in containers. Denied files of the image are replaced by stand-ins, which code can't
//! change. The guest reports starts of programs, which are matched with the lists here for the record.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brig_audit::Command;
use brig_guest_host::commands::{Root, Scan, scan};
use brig_guest_host::link::{self, CALLER, as_given};
use brig_guest_host::tools::PROGRAM;
use brig_policy::Commands;
use brig_reason::ReasonCode;
use brig_sandbox::{Error, Plan, Result};
use brig_wire::{DeniedPrograms, Exec, ExecOutcome};

use crate::apparmor::{Kernel, Profile};
use crate::archive;
use crate::derived::{NAMES, TOOLS};
use crate::image::Image;
use crate::image_programs::ImagePrograms;
use crate::programs;

/// Paths where mounts cover the image.
const COVERED: [&str; 7] = [
    "/workspace",
    "/tmp",
    "/run/brig",
    "/proc",
    "/sys",
    "/dev",
    "/.brig",
];
/// How many processes of one execution are remembered.
const REMEMBERED: usize = 4096;
/// How many ancestors are searched for a line of code.
const GENERATIONS: usize = 8;

/// The lists of a plan, applied to one image.
#[derive(Debug)]
pub(crate) struct Lists {
    commands: Commands,
    scan: Arc<Scan>,
    denied: Option<DeniedPrograms>,
    held: Option<ProfileRules>,
    lines: Mutex<Lines>,
}

/// What the AppArmor profile enforces in addition to the stand-ins.
#[derive(Debug)]
struct ProfileRules {
    profile: String,
    /// Directories where no denied name may be executed.
    writable: Vec<String>,
}

/// Lines of code that interpreters have reported, and parents, by process.
#[derive(Debug, Default)]
struct Lines {
    told: HashMap<u32, String>,
    above: HashMap<u32, u32>,
}

impl Lists {
    pub(crate) fn read(plan: &Plan, image: &Image, programs: &ImagePrograms) -> Result<Self> {
        let commands = plan.commands().cloned().unwrap_or_default();
        let path = programs::path(image).split(':');
        let root = Root::open(programs.path(), path, None)
            .map_err(|error| Error::io("look for commands", error))?
            .kept_in(plan.state().map(|state| state.join("commands")));
        let mut scan = scan(&commands, &root);
        if !plan.tools().is_empty()
            && let Some(allowed) = &mut Arc::make_mut(&mut scan).allowed
        {
            allowed.programs.insert(Path::new(TOOLS).join(PROGRAM));
        }
        let denied = stand_ins(&scan)?;
        Ok(Self {
            commands,
            scan,
            denied,
            held: None,
            lines: Mutex::default(),
        })
    }

    /// Enforces the lists by an AppArmor profile too. An allowlist is enforced by nothing else.
    pub(crate) async fn enforce(&mut self, kernel: &Kernel, writable: Vec<String>) -> Result<()> {
        let scan = &*self.scan;
        if scan.denied.is_empty() && scan.names.is_empty() && scan.allowed.is_none() {
            return Ok(());
        }
        let profile = Profile::of(scan, &self.stand_ins(), &writable);
        match kernel.load(&profile).await {
            Ok(()) => {
                let profile = profile.name;
                self.held = Some(ProfileRules { profile, writable });
                Ok(())
            }
            Err(error) if scan.allowed.is_some() => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// The profile to start under.
    pub(crate) fn profile(&self) -> Option<&str> {
        Some(&self.held.as_ref()?.profile)
    }

    fn stand_ins(&self) -> Vec<PathBuf> {
        let Some(denied) = &self.denied else {
            return Vec::new();
        };
        let covered = denied.covered.iter();
        let covered = covered.map(|path| Path::new(OsStr::from_bytes(path)).to_owned());
        let names = denied.names.iter().map(|name| Path::new(NAMES).join(name));
        covered.chain(names).collect()
    }

    /// The programs that stand-ins replace.
    pub(crate) fn denied(&self) -> Option<&DeniedPrograms> {
        self.denied.as_ref()
    }

    fn is_stand_in(&self, path: &str) -> bool {
        self.denied.as_ref().is_some_and(|denied| {
            Path::new(path).starts_with(&denied.directory)
                || denied
                    .covered
                    .iter()
                    .any(|covered| covered == path.as_bytes())
        })
    }

    fn rule_for(&self, path: &str) -> Option<Arc<str>> {
        let path = Path::new(path);
        let by_path = self.scan.denied.get(path).map(|denied| &denied.rule);
        let name = || self.scan.names.get(path.file_name()?.to_str()?);
        by_path.or_else(name).cloned()
    }

    /// A stand-in has started and reports its arguments.
    fn stand_in_started(
        &self,
        stand_in: &str,
        words: Vec<String>,
        line: Option<String>,
    ) -> Command {
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
            code: ReasonCode::CommandDenied.into(),
            rule: self.rule_for(stand_in).map(|rule| rule.to_string()),
            program,
            path,
            arguments: as_given(words),
            parent: None,
            caller: line,
            ..Command::default()
        }
    }

    /// What the profile refuses to start.
    fn enforced(&self, exec: &Exec) -> Option<(ReasonCode, Option<Arc<str>>)> {
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
            return Some((ReasonCode::CommandDenied, Some(rule)));
        }
        let allowed = self.scan.allowed.as_ref()?;
        (!allowed.starts(path)).then_some((ReasonCode::CommandNotAllowed, None))
    }

    /// Rules that can only be observed, and those in observe mode.
    fn observed(&self, exec: &Exec) -> Option<(ReasonCode, Option<Arc<str>>)> {
        let arguments = exec.arguments.get(1..).unwrap_or_default();
        let names = [Some(exec.program.as_str()), exec.path.as_deref()];
        let find = |list: &brig_policy::CommandList| {
            let mut names = names.into_iter().flatten();
            names.find_map(|name| list.find(name, arguments).map(|entry| entry.rule.clone()))
        };
        let mut denied = self.commands.denied.iter();
        if let Some(rule) = denied.find_map(find) {
            return Some((ReasonCode::CommandObserved, Some(rule)));
        }
        let unlisted = self
            .commands
            .allowed
            .iter()
            .any(|list| find(list).is_none());
        unlisted.then_some((ReasonCode::CommandObserved, None))
    }
}

impl link::CommandObserver for Lists {
    fn observe(&self, exec: Exec) -> Option<Command> {
        let line = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.note(&exec);
            if exec.program == CALLER {
                return None;
            }
            lines.of(exec.process)
        };
        // A stand-in, or a copy of one, which reports itself by a failing `execve`.
        if let Some(running) = exec.caller.as_deref()
            && (self.is_stand_in(running) || exec.program == "/")
        {
            return Some(self.stand_in_started(running, exec.arguments, line));
        }
        if exec
            .path
            .as_deref()
            .is_some_and(|path| self.is_stand_in(path))
        {
            // It will report itself.
            return None;
        }
        let held = self.enforced(&exec);
        let refused = exec.refused || held.is_some();
        let (code, rule) = if let Some(held) = held {
            held
        } else if exec.refused {
            let path = exec.path.as_deref();
            let loads = exec.denied_file.as_deref();
            let names = [Some(exec.program.as_str()), path, loads];
            let rule = names
                .into_iter()
                .flatten()
                .find_map(|name| self.rule_for(name));
            (ReasonCode::CommandDenied, rule)
        } else if exec.path.is_none() && exec.program.contains('/') && exec.caller.is_some() {
            // There is no such program, and no rule about it.
            return None;
        } else {
            self.observed(&exec)
                .unwrap_or((ReasonCode::CommandAllowed, None))
        };
        let code = match exec.outcome {
            ExecOutcome::Known => code,
            ExecOutcome::Failed => ReasonCode::CommandFailed,
            ExecOutcome::Unconfirmed => ReasonCode::CommandUnconfirmed,
        };
        Some(Command {
            allowed: !refused,
            code: code.into(),
            rule: rule.map(|rule| rule.to_string()),
            program: exec.program,
            path: exec.path,
            arguments: as_given(exec.arguments),
            parent: exec.caller,
            caller: line,
            ..Command::default()
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
            && let Some(line) = exec.arguments.first()
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

/// Fails for a denied path where no stand-in can be put.
fn stand_ins(scan: &Scan) -> Result<Option<DeniedPrograms>> {
    let hidden = |path: &Path| COVERED.iter().any(|covered| path.starts_with(covered));
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let (elsewhere, covered): (Vec<_>, Vec<_>) = scan.denied.keys().partition(|path| hidden(path));
    // An image is changed by an archive, whose names are text.
    let covered: Vec<String> = (covered.into_iter())
        .map(|path| path.to_str().map(str::to_owned).ok_or(path))
        .collect::<Result<_, _>>()
        .map_err(|path| Error::InvalidConfig {
            what: "command_denylist",
            problem: format!("`{}` is not UTF-8, so it can't be replaced", path.display()),
        })?;
    let elsewhere: Vec<String> = elsewhere.into_iter().map(text).collect();
    let names: Vec<String> = scan.names.keys().cloned().collect();
    if covered.is_empty() && names.is_empty() && elsewhere.is_empty() {
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
    Ok(Some(DeniedPrograms {
        shim: 0,
        directory: NAMES.into(),
        names,
        covered: covered.into_iter().map(String::into_bytes).collect(),
        elsewhere,
    }))
}

#[cfg(test)]
mod tests;
