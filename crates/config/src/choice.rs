//! Sandboxed or not. One function, and nobody else decides it.

use std::fmt;

/// Whether an agent runs in a sandbox, and who said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub sandbox: bool,
    pub by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Flag,
    Alias,
    AgentFile,
    User,
    /// Nobody said anything.
    Default,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            By::Flag => "flag",
            By::Alias => "alias",
            By::AgentFile => "agent file",
            By::User => "user",
            By::Default => "default",
        })
    }
}

/// The nearest that says anything decides: the flag, the alias, the agent file, the user. If none
/// does, it is a sandbox.
pub fn choose(
    flag: Option<bool>,
    alias: Option<bool>,
    agent_file: Option<bool>,
    user: Option<bool>,
) -> Choice {
    let said = [
        (flag, By::Flag),
        (alias, By::Alias),
        (agent_file, By::AgentFile),
        (user, By::User),
    ];
    let nearest = said.into_iter().find_map(|(said, by)| Some((said?, by)));
    let (sandbox, by) = nearest.unwrap_or((true, By::Default));
    Choice { sandbox, by }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Option<bool> = None;
    const ON: Option<bool> = Some(true);
    const OFF: Option<bool> = Some(false);

    #[test]
    fn the_nearest_that_says_anything_decides() {
        #[rustfmt::skip]
        let table = [
            // flag, alias, agent file, user, and what comes of it
            (NONE, NONE, NONE, NONE, true,  By::Default),
            (NONE, NONE, NONE, ON,   true,  By::User),
            (NONE, NONE, NONE, OFF,  false, By::User),
            (NONE, NONE, ON,   NONE, true,  By::AgentFile),
            (NONE, NONE, ON,   OFF,  true,  By::AgentFile),
            (NONE, NONE, OFF,  NONE, false, By::AgentFile),
            (NONE, NONE, OFF,  ON,   false, By::AgentFile),
            (NONE, ON,   NONE, OFF,  true,  By::Alias),
            (NONE, ON,   OFF,  OFF,  true,  By::Alias),
            (NONE, OFF,  NONE, ON,   false, By::Alias),
            (NONE, OFF,  ON,   ON,   false, By::Alias),
            (ON,   NONE, OFF,  OFF,  true,  By::Flag),
            (ON,   OFF,  OFF,  OFF,  true,  By::Flag),
            (OFF,  NONE, NONE, NONE, false, By::Flag),
            (OFF,  NONE, ON,   NONE, false, By::Flag),
            (OFF,  ON,   ON,   ON,   false, By::Flag),
        ];
        for (flag, alias, agent, user, sandbox, by) in table {
            let chosen = choose(flag, alias, agent, user);
            assert_eq!(
                chosen,
                Choice { sandbox, by },
                "{flag:?} {alias:?} {agent:?} {user:?}"
            );
        }
    }

    #[test]
    fn what_is_farther_never_matters_once_somebody_spoke() {
        let all = [NONE, ON, OFF];
        let mut seen = 0;
        for flag in all {
            for alias in all {
                for agent in all {
                    for user in all {
                        let chosen = choose(flag, alias, agent, user);
                        let slow = match (flag, alias, agent, user) {
                            (Some(said), ..) => (said, By::Flag),
                            (_, Some(said), ..) => (said, By::Alias),
                            (_, _, Some(said), _) => (said, By::AgentFile),
                            (_, _, _, Some(said)) => (said, By::User),
                            _ => (true, By::Default),
                        };
                        assert_eq!((chosen.sandbox, chosen.by), slow);
                        seen += 1;
                    }
                }
            }
        }
        assert_eq!(seen, 81);
    }
}
