//! Lists of commands as an AppArmor profile: what the engine's own profile allows, less the programs
//! that must not start.

mod kernel;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use brig_guest_host::commands::{Allowed, Scan};
use brig_layers::hex;
use sha2::{Digest, Sha256};

use crate::derived::GUEST;
use crate::engine::Facts;

pub use kernel::Kernel;

/// On containers: the profile they are under.
pub(crate) const LABEL: &str = "brig.apparmor";

/// All names of profiles begin so.
const PREFIX: &str = "brig-";

/// Where libraries are, and nothing else is mapped as code.
const LIBRARIES: &str = "/{,usr/,usr/local/}lib{,32,64,x32}";

/// The means to load profiles for containers of an engine, or what that would take.
pub(crate) fn usable(facts: &Facts, local: bool) -> Result<Kernel, &'static str> {
    if !local {
        return Err("use an engine on this machine");
    }
    if !facts.has("apparmor") {
        return Err("use an engine with AppArmor");
    }
    Kernel::find()
}

/// One that holds lists of commands in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Says what is in it: equal lists have one profile.
    pub name: String,
    /// In the language of AppArmor.
    pub text: String,
}

impl Profile {
    /// `stand_ins`: where they are; they may start. `writable`: folders whose content is the program's.
    /// Nothing in those is ever on a list.
    pub fn of(scan: &Scan, stand_ins: &[PathBuf], writable: &[String]) -> Self {
        let stand_ins: BTreeSet<&Path> = stand_ins.iter().map(PathBuf::as_path).collect();
        // A root that can be written still is not the program's user's.
        let writable = writable.iter().map(Path::new);
        let writable: Vec<&Path> = writable.filter(|path| *path != Path::new("/")).collect();
        let mut rules = String::new();
        match &scan.allowed {
            Some(allowed) => allow(&mut rules, allowed, &stand_ins, &writable),
            None => rules.push_str("  file,\n"),
        }
        deny(&mut rules, scan, &stand_ins, &writable);
        let body = format!("{}{rules}", text::BASE);
        let name = format!("{PREFIX}{}", &hex(&Sha256::digest(&body))[..32]);
        let text = format!(
            "profile {name} flags=(attach_disconnected,mediate_deleted) {{\n\
             {body}  signal (send,receive) peer={name},\n  \
             ptrace (trace,tracedby,read,readby) peer={name},\n}}\n"
        );
        Self { name, text }
    }
}

fn allow(rules: &mut String, allowed: &Allowed, stand_ins: &BTreeSet<&Path>, writable: &[&Path]) {
    rules.push_str("  /** rwlk,\n");
    let fixed = |path: &&Path| !writable.iter().any(|folder| path.starts_with(folder));
    let listed = allowed.programs.iter().chain(&allowed.interpreters);
    // AppArmor looks at a script and not at what the kernel starts for it.
    let listed = listed
        .map(PathBuf::as_path)
        .filter(|path| allowed.starts(path));
    let listed: BTreeSet<&Path> = listed
        .chain(stand_ins.iter().copied())
        .filter(fixed)
        .collect();
    let loaders: Vec<&Path> = allowed.loaders.iter().map(PathBuf::as_path).collect();
    for path in &listed {
        if let Some(path) = text::exactly(path) {
            rules.push_str(&format!("  \"{path}\" mrix,\n"));
        }
    }
    // The kernel maps a loader for a program that it starts. Started by itself it would run anything.
    // The engine starts the guest, and nobody else may.
    let mapped = loaders.iter().copied().chain([Path::new(GUEST)]);
    for path in mapped.filter(fixed) {
        if let Some(path) = text::exactly(path) {
            rules.push_str(&format!("  \"{path}\" mr,\n"));
        }
    }
    rules.push_str(&format!("  {LIBRARIES}/**.so{{,.*}} mr,\n"));
    // A folder moved there would bring its content with it.
    rules.push_str(&format!("  deny {LIBRARIES}/** wl,\n"));
    let folders: BTreeSet<&Path> = listed
        .iter()
        .copied()
        .chain(loaders)
        .filter(fixed)
        .filter_map(Path::parent)
        .filter(|folder| *folder != Path::new("/"))
        .collect();
    for folder in folders {
        rules.push_str(&format!("  deny \"{}/**\" wl,\n", text::at_least(folder)));
    }
}

fn deny(rules: &mut String, scan: &Scan, stand_ins: &BTreeSet<&Path>, writable: &[&Path]) {
    // A stand-in has to start, to say that it is one.
    let denied = scan.denied.keys().map(PathBuf::as_path);
    for path in denied.filter(|path| !stand_ins.contains(path)) {
        rules.push_str(&format!("  deny \"{}\" rwklmx,\n", text::at_least(path)));
    }
    for name in scan.names.keys() {
        for folder in writable {
            rules.push_str(&format!(
                "  deny \"{}/{{,**/}}{}\" mx,\n",
                text::at_least(folder),
                text::at_least(Path::new(name))
            ));
        }
    }
}

#[cfg(test)]
mod tests;
