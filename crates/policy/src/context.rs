//! The facts that a decision is made over.

use brig_python_semantics::{Map, Value};

use crate::decision::Action;
use crate::document::fields::FACTS;

/// What is being asked for. Built by Brig, never by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The agent that asks.
    pub agent: &'a str,
    /// What it asks for.
    pub action: Action,
    /// The language of the code.
    pub language: Option<&'a str>,
    /// The source code, for [`Action::Execute`].
    pub code: Option<&'a [u8]>,
    /// Program and arguments, for [`Action::Run`].
    pub command: Option<&'a [String]>,
    /// The name of a tool.
    pub tool: Option<&'a str>,
    /// The arguments of a tool.
    pub tool_arguments: Option<&'a Map>,
    /// A host to connect to.
    pub host: Option<&'a str>,
    /// A port to connect to.
    pub port: Option<u16>,
    /// A path to open.
    pub path: Option<&'a str>,
    /// What the caller adds.
    pub extra: Option<&'a Extra>,
}

/// Facts that a caller adds to Brig's own. They never replace one.
#[derive(Clone, Debug, Default)]
pub struct Extra(Map);

/// A fact that only Brig may state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is a fact that Brig states itself; give yours another name")]
pub struct OwnFact(pub String);

/// Facts that a caller may add where Brig has none. All others only Brig may state.
const OPEN_FACTS: [&str; 4] = ["tool_name", "host", "port", "path"];

impl Extra {
    /// Refuses facts that only Brig may state.
    pub fn new(facts: Map) -> Result<Self, OwnFact> {
        let own = |key: &&str| FACTS.contains(key) && !OPEN_FACTS.contains(key);
        if let Some(key) = facts.iter().map(|(key, _)| key).find(own) {
            return Err(OwnFact(key.into()));
        }
        Ok(Self(facts))
    }
}

impl<'a> Request<'a> {
    /// A request without further facts.
    pub fn new(agent: &'a str, action: Action) -> Self {
        Self {
            agent,
            action,
            language: None,
            code: None,
            command: None,
            tool: None,
            tool_arguments: None,
            host: None,
            port: None,
            path: None,
            extra: None,
        }
    }

    /// The facts under the names that conditions use.
    pub fn context(&self) -> Map {
        let mut facts = self.extra.map(|extra| extra.0.clone()).unwrap_or_default();
        facts.insert("agent_id", self.agent);
        facts.insert("action", self.action.name());
        let texts = [
            ("language", self.language),
            ("tool_name", self.tool),
            ("host", self.host),
            ("path", self.path),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                facts.insert(name, text);
            }
        }
        if let Some(arguments) = self.tool_arguments {
            // Each also by itself, because conditions do not look into a map.
            for (name, value) in arguments.iter() {
                facts.insert(format!("tool_args.{name}"), value.clone());
            }
            facts.insert("tool_args", Value::Map(arguments.clone()));
        }
        if let Some(port) = self.port {
            facts.insert("port", i64::from(port));
        }
        if let Some(code) = self.code {
            facts.insert("code", String::from_utf8_lossy(code).into_owned());
        }
        if let Some(command) = self.command {
            facts.insert("command", command_line(command));
            facts.insert(
                "argv",
                Value::List(command.iter().map(|word| (&**word).into()).collect()),
            );
            if let Some(program) = command.first() {
                facts.insert("program", program.rsplit('/').next().unwrap_or_default());
            }
        }
        facts
    }
}

/// The words of a command as a shell would take them.
pub fn command_line(command: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,".contains(c);
    let mut line = String::new();
    for (at, word) in command.iter().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        if !word.is_empty() && word.chars().all(plain) {
            line.push_str(word);
        } else {
            line.push('\'');
            line.push_str(&word.replace('\'', r"'\''"));
            line.push('\'');
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_adds_facts_but_takes_the_place_of_none() {
        for own in [
            "agent_id", "action", "code", "command", "program", "argv", "language", "scan",
        ] {
            let facts = [(own, "mine")].into_iter().collect();
            assert_eq!(Extra::new(facts).err(), Some(OwnFact(own.into())));
        }
        let facts = [("ticket", "T-1"), ("tool_name", "mine"), ("path", "a/b")];
        let extra = Extra::new(facts.into_iter().collect()).expect("additions");
        let request = Request {
            code: Some(b"print(1)"),
            tool: Some("fetch"),
            extra: Some(&extra),
            ..Request::new("agent-1", Action::Execute)
        };
        let context = request.context();
        let text = |key| context.get(key).and_then(Value::as_text);
        assert_eq!(text("ticket"), Some("T-1"));
        assert_eq!(text("tool_name"), Some("fetch"));
        assert_eq!(text("path"), Some("a/b"));
        assert_eq!(text("agent_id"), Some("agent-1"));
        assert_eq!(text("action"), Some("execute"));
    }

    #[test]
    fn a_command_is_one_line_a_list_and_a_program() {
        let command = ["/usr/bin/sh", "-c", "curl 'x'", ""].map(String::from);
        let request = Request {
            command: Some(&command),
            ..Request::new("a", Action::Run)
        };
        let context = request.context();
        let text = |key| context.get(key).and_then(Value::as_text);
        assert_eq!(text("command"), Some(r"/usr/bin/sh -c 'curl '\''x'\''' ''"));
        assert_eq!(text("program"), Some("sh"));
        assert_eq!(context.get("code"), None);
    }
}
