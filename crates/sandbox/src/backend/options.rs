//! Settings that belong to one kind of backend. Each kind publishes one list; command line flags,
//! help, documentation and checks are made from it.

use std::collections::BTreeMap;

use crate::{BackendId, Error, Result};

/// Values by option name, as given. Only the backend knows what they mean.
pub type Options = BTreeMap<String, String>;

/// One option of a kind of backend.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Also the name of the flag: `image` is `--image`.
    pub name: &'static str,
    /// What a value is called in help texts, such as `NAME`.
    pub value_name: &'static str,
    /// One or two sentences, without a final period.
    pub help: &'static str,
    /// Says what is wrong with a value.
    pub check: fn(&str) -> std::result::Result<(), String>,
}

/// A kind of backend, as far as it can be described without one.
#[derive(Clone, Copy, Debug)]
pub struct BackendKind {
    /// As in [`BackendId::kind`].
    pub name: &'static str,
    /// The heading of its options in help texts.
    pub title: &'static str,
    /// What a session can set.
    pub options: &'static [OptionSpec],
    /// What the user's configuration can set for a named backend of this kind, beside `options`,
    /// which become the defaults of its sessions.
    pub settings: &'static [OptionSpec],
    /// Whether the directory of a script is mounted without being asked for: false where mounts cost something,
    /// such as other permissions of the files.
    pub mounts_scripts: bool,
}

impl BackendKind {
    /// Refuses an option that is unknown, or whose value is not valid.
    pub fn check(&self, id: &BackendId, given: &Options) -> Result<()> {
        check(id, self.options.iter(), given)
    }

    /// The same for a named backend in the user's configuration.
    pub fn check_settings(&self, id: &BackendId, given: &Options) -> Result<()> {
        check(id, self.options.iter().chain(self.settings), given)
    }
}

fn check<'a>(
    id: &BackendId,
    known: impl Iterator<Item = &'a OptionSpec> + Clone,
    given: &Options,
) -> Result<()> {
    for (name, value) in given {
        let Some(spec) = known.clone().find(|spec| spec.name == name) else {
            return Err(Error::InvalidConfig {
                what: "config",
                problem: format!(
                    "the {id} backend does not support the option `{}`",
                    name.escape_debug()
                ),
            });
        };
        (spec.check)(value).map_err(|problem| Error::InvalidConfig {
            what: spec.name,
            problem,
        })?;
    }
    Ok(())
}

/// For options whose values are checked where they are used.
pub fn any(_: &str) -> std::result::Result<(), String> {
    Ok(())
}
