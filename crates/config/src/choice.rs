//! Sandboxed or not. Only one function decides it.

use std::fmt;

/// Whether an agent runs in a sandbox, and what set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub sandbox: bool,
    pub by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Flag,
    Alias,
    User,
    AgentFile,
    /// Nothing sets it.
    Default,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            By::Flag => "flag",
            By::Alias => "alias",
            By::User => "user",
            By::AgentFile => "agent file",
            By::Default => "default",
        })
    }
}

/// Whether each of them turns the sandbox on or off, if set.
#[derive(Clone, Copy, Debug, Default)]
pub struct SandboxSettings {
    pub flag: Option<bool>,
    pub alias: Option<bool>,
    /// The default in the user's configuration.
    pub user: Option<bool>,
    pub agent_file: Option<bool>,
}

/// The first that is set decides: the flag, the alias, the user's configuration, the agent file. If
/// none is, the agent is sandboxed. The first three are the user's own; a file may come from anyone.
pub fn choose(settings: SandboxSettings) -> Choice {
    let settings = [
        (settings.flag, By::Flag),
        (settings.alias, By::Alias),
        (settings.user, By::User),
        (settings.agent_file, By::AgentFile),
    ];
    let first = settings.into_iter().find_map(|(set, by)| Some((set?, by)));
    let (sandbox, by) = first.unwrap_or((true, By::Default));
    Choice { sandbox, by }
}

impl Choice {
    /// Whether the user must have consented to this agent file, as it is now. An alias is for a file as
    /// it was when the alias was made; a flag is for this run.
    pub fn needs_trust(self) -> bool {
        !self.sandbox && matches!(self.by, By::AgentFile | By::Alias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Option<bool> = None;
    const ON: Option<bool> = Some(true);
    const OFF: Option<bool> = Some(false);

    fn of(
        flag: Option<bool>,
        alias: Option<bool>,
        user: Option<bool>,
        file: Option<bool>,
    ) -> SandboxSettings {
        SandboxSettings {
            flag,
            alias,
            user,
            agent_file: file,
        }
    }

    #[test]
    fn the_first_that_is_set_decides() {
        #[rustfmt::skip]
        let table = [
            // flag, alias, user, agent file, and what comes of it
            (NONE, NONE, NONE, NONE, true,  By::Default),
            (NONE, NONE, ON,   NONE, true,  By::User),
            (NONE, NONE, OFF,  NONE, false, By::User),
            (NONE, NONE, NONE, ON,   true,  By::AgentFile),
            (NONE, NONE, NONE, OFF,  false, By::AgentFile),
            // A file does not override the user.
            (NONE, NONE, ON,   OFF,  true,  By::User),
            (NONE, NONE, OFF,  ON,   false, By::User),
            (NONE, ON,   OFF,  NONE, true,  By::Alias),
            (NONE, ON,   OFF,  OFF,  true,  By::Alias),
            (NONE, OFF,  ON,   NONE, false, By::Alias),
            (NONE, OFF,  ON,   ON,   false, By::Alias),
            (ON,   NONE, OFF,  OFF,  true,  By::Flag),
            (ON,   OFF,  OFF,  OFF,  true,  By::Flag),
            (OFF,  NONE, NONE, NONE, false, By::Flag),
            (OFF,  NONE, NONE, ON,   false, By::Flag),
            (OFF,  ON,   ON,   ON,   false, By::Flag),
        ];
        for (flag, alias, user, file, sandbox, by) in table {
            let chosen = choose(of(flag, alias, user, file));
            let wanted = Choice { sandbox, by };
            assert_eq!(chosen, wanted, "{flag:?} {alias:?} {user:?} {file:?}");
        }
    }

    #[test]
    fn a_file_alone_never_turns_the_sandbox_off_without_trust() {
        let all = [NONE, ON, OFF];
        let mut alone = 0;
        for flag in all {
            for alias in all {
                for user in all {
                    for file in all {
                        let chosen = choose(of(flag, alias, user, file));
                        let own = flag.or(alias).or(user);
                        assert_eq!(chosen.sandbox, own.or(file).unwrap_or(true));
                        let file_only = own.is_none() && file == OFF;
                        let by_alias = flag.is_none() && alias == OFF;
                        assert_eq!(chosen.needs_trust(), file_only || by_alias);
                        alone += usize::from(file_only);
                    }
                }
            }
        }
        assert_eq!(alone, 1);
    }
}
