//! How values are written on the command line.

use brig_config::Mount;
pub(crate) use brig_config::quantity::{cpus, duration, size};
use brig_sandbox::config::MountSpec;
use brig_sandbox::{Control, Language};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// `KEY=VALUE`. The value may hold anything, also `=`.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) | None => Err("must be KEY=VALUE".into()),
        Some((key, value)) => Ok((key.into(), value.into())),
    }
}

/// `SRC:DST[:ro|rw]`, read-only unless `rw` is given.
pub(crate) fn mount(text: &str) -> Result<MountSpec, String> {
    let mount = Mount::parse(text)?;
    Ok(MountSpec {
        source: mount.source,
        target: mount.target,
        writable: mount.writable,
    })
}

pub(crate) fn control() -> impl TypedValueParser<Value = Control> {
    PossibleValuesParser::new(Control::ALL.map(Control::name))
        .try_map(|name| Control::from_name(&name).ok_or("no such control"))
}

/// What `--json` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JsonForm {
    /// One object at the end
    Object,
    /// One line for each event, as it happens; the last one has the whole result
    Stream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lang {
    Python,
    Bash,
    Node,
}

impl From<Lang> for Language {
    fn from(lang: Lang) -> Self {
        match lang {
            Lang::Python => Language::Python,
            Lang::Bash => Language::Bash,
            Lang::Node => Language::Node,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Overflow {
    /// Discard the rest, but count it; the program continues
    #[default]
    Truncate,
    /// Kill the program
    Kill,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_what_follows_the_first_equals_sign() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable("A="), Ok(("A".into(), String::new())));
        assert!(variable("A").is_err());
        assert!(variable("=b").is_err());
    }
}
