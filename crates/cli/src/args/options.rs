//! Flags for the options of backends, made from what each kind publishes.

use brig_sandbox::backend::{OptionSpec, Options};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::backend::KINDS;

#[derive(Clone, Debug, Default)]
pub(crate) struct OptionArgs {
    given: Options,
}

impl OptionArgs {
    /// What was given, and of the user's defaults what this backend has.
    pub(crate) fn with_defaults(&self, defaults: &Options, backend: &str) -> Options {
        let kind = backend.split(':').next().unwrap_or_default();
        let kind = KINDS.iter().find(|entry| entry.kind.name == kind);
        let specs = kind.map_or(&[][..], |entry| entry.kind.options);
        let known = |name: &str| specs.iter().any(|spec| spec.name == name);
        let defaults = defaults.iter().filter(|(name, _)| known(name));
        let given = self.given.iter();
        let all = defaults.chain(given);
        all.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// The first flag that was given.
    pub(crate) fn first(&self) -> Option<String> {
        let name = self.given.keys().next()?;
        Some(format!("--{name}"))
    }

    fn read(matches: &ArgMatches) -> Self {
        let value = |spec: &OptionSpec| {
            let value = matches.get_one::<String>(spec.name)?;
            Some((spec.name.to_owned(), value.clone()))
        };
        let given = flags().iter().filter_map(|flag| value(flag.spec)).collect();
        Self { given }
    }
}

struct Flag {
    spec: &'static OptionSpec,
    /// The kinds of backend that have it.
    titles: Vec<&'static str>,
}

/// One flag for each name, whichever kinds have it.
fn flags() -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for kind in KINDS.iter().map(|entry| entry.kind) {
        for spec in kind.options {
            match flags.iter_mut().find(|flag| flag.spec.name == spec.name) {
                Some(flag) => flag.titles.push(kind.title),
                None => flags.push(Flag {
                    spec,
                    titles: vec![kind.title],
                }),
            }
        }
    }
    flags
}

impl Args for OptionArgs {
    fn augment_args(command: Command) -> Command {
        flags().into_iter().fold(command, |command, flag| {
            command.arg(
                Arg::new(flag.spec.name)
                    .long(flag.spec.name)
                    .value_name(flag.spec.value_name)
                    .help(flag.spec.help)
                    .help_heading(flag.titles.join(", ")),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::read(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::read(matches);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_every_kind_is_a_flag_once() {
        let flags = flags();
        for kind in KINDS.iter().map(|entry| entry.kind) {
            for spec in kind.options {
                let found: Vec<_> = (flags.iter())
                    .filter(|flag| flag.spec.name == spec.name)
                    .collect();
                assert_eq!(found.len(), 1, "{}", spec.name);
                assert!(found[0].titles.contains(&kind.title));
            }
        }
        let command = OptionArgs::augment_args(Command::new("test"));
        let line = flags
            .iter()
            .flat_map(|flag| [format!("--{}", flag.spec.name), "value".into()]);
        let line = std::iter::once("test".to_owned()).chain(line);
        let matches = command.try_get_matches_from(line).expect("flags");
        let read = OptionArgs::from_arg_matches(&matches).expect("options");
        assert_eq!(read.given.len(), flags.len());
    }
}
