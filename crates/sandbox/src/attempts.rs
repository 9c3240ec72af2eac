//! What an execution asks of the world outside: the network, commands, tools. Each attempt is on
//! record before it has an answer, and is kept for the receipt and the report.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use brig_audit::receipt::{self, Omitted};
use brig_audit::{Command, Egress, Event as Fact, Recorder, Tool};
use tokio::sync::Notify;

use crate::shared::{Owner, lock};
use crate::{Error, ExecutionId, Result};

/// Listed of each kind: so many that were allowed, and so many that were not.
const LISTED: usize = 25;
/// Programs that are kept apart.
const PROGRAMS: usize = 1000;
/// Arguments of a command that are kept, and characters of each.
const ARGUMENTS: usize = 64;
const LONGEST: usize = 256;

/// Where a backend tells what one execution attempts. On an error the attempt must not succeed;
/// the execution is ended as well.
#[derive(Debug)]
pub struct Attempts {
    owner: Owner,
    execution: ExecutionId,
    /// Values of variables, which no record may repeat.
    secrets: Vec<String>,
    recorder: Arc<dyn Recorder>,
    state: Mutex<State>,
    unrecorded: Notify,
}

#[derive(Debug, Default)]
struct State {
    listed: Attempted,
    /// Why one could not be recorded.
    failed: Option<brig_audit::RecordError>,
}

/// The attempts of one execution, the first of each kind.
#[derive(Clone, Debug, Default)]
pub struct Attempted {
    pub egress: Vec<Egress>,
    pub commands: Vec<Command>,
    pub tools: Vec<Tool>,
    /// How many more there were.
    pub omitted: Omitted,
    /// All programs that were started, each once.
    pub programs: BTreeSet<String>,
}

impl Attempts {
    pub(crate) fn new(
        owner: Owner,
        execution: ExecutionId,
        secrets: Vec<String>,
        recorder: Arc<dyn Recorder>,
    ) -> Self {
        Self {
            owner,
            execution,
            secrets,
            recorder,
            state: Mutex::default(),
            unrecorded: Notify::new(),
        }
    }

    /// A connection, or a name to look up.
    pub fn egress(&self, mut egress: Egress) -> Result<()> {
        egress.host = self.short(&egress.host);
        self.record(Fact::EgressDecided(egress.clone()))?;
        let listed = &mut lock(&self.state).listed;
        let count = &mut listed.omitted.egress;
        list(&mut listed.egress, egress, |one| one.allowed, count);
        Ok(())
    }

    /// A connection has ended.
    pub fn egress_closed(&self, mut egress: Egress) -> Result<()> {
        egress.host = self.short(&egress.host);
        self.record(Fact::EgressClosed(egress.clone()))?;
        let listed = &mut lock(&self.state).listed.egress;
        let alike = |one: &&mut Egress| {
            let of = |egress: &Egress| (egress.port, egress.allowed, egress.carried.is_none());
            of(one) == (egress.port, true, true)
                && one.host == egress.host
                && one.protocol == egress.protocol
        };
        if let Some(known) = listed.iter_mut().find(alike) {
            known.carried = egress.carried;
        }
        Ok(())
    }

    /// A program that is to be started.
    pub fn command(&self, mut command: Command) -> Result<()> {
        command.program = self.short(&command.program);
        command.arguments.truncate(ARGUMENTS);
        for argument in &mut command.arguments {
            *argument = self.short(argument);
        }
        for text in [&mut command.path, &mut command.parent, &mut command.caller] {
            *text = text.take().map(|text| self.short(&text));
        }
        self.record(Fact::CommandAttempted(command.clone()))?;
        let listed = &mut lock(&self.state).listed;
        if command.allowed && listed.programs.len() < PROGRAMS {
            let relative = command.program.contains('/') && !command.program.starts_with('/');
            let program = command.path.as_ref().filter(|_| relative);
            let program = program.unwrap_or(&command.program);
            listed.programs.insert(program.clone());
        }
        let count = &mut listed.omitted.commands;
        list(&mut listed.commands, command, |one| one.allowed, count);
        Ok(())
    }

    /// A call of a tool.
    pub fn tool(&self, mut tool: Tool) -> Result<()> {
        tool.tool = self.short(&tool.tool);
        self.record(Fact::ToolCalled(tool.clone()))?;
        let listed = &mut lock(&self.state).listed;
        let count = &mut listed.omitted.tools;
        list(&mut listed.tools, tool, |one| one.allowed, count);
        Ok(())
    }

    fn record(&self, fact: Fact) -> Result<()> {
        let record = self.owner.record(Some(&self.execution), fact);
        self.recorder.note(record).map_err(|error| {
            lock(&self.state).failed = Some(error.clone());
            self.unrecorded.notify_one();
            Error::Record(error)
        })
    }

    /// Without secrets, and of a length that cannot fill a disk.
    fn short(&self, text: &str) -> String {
        let text = self.redact(text);
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    pub(crate) fn redact(&self, text: &str) -> String {
        receipt::redact(text, &self.secrets())
    }

    pub(crate) fn secrets(&self) -> Vec<&str> {
        self.secrets.iter().map(String::as_str).collect()
    }

    pub(crate) fn listed(&self) -> Attempted {
        lock(&self.state).listed.clone()
    }

    /// Ends when something could not be recorded.
    pub(crate) async fn unrecorded(&self) {
        self.unrecorded.notified().await;
    }

    /// An error if something could not be recorded.
    pub(crate) fn complete(&self) -> Result<()> {
        match &lock(&self.state).failed {
            Some(error) => Err(Error::Record(error.clone())),
            None => Ok(()),
        }
    }
}

fn list<T>(all: &mut Vec<T>, one: T, allowed: impl Fn(&T) -> bool, omitted: &mut u64) {
    let kind = allowed(&one);
    if all.iter().filter(|other| allowed(other) == kind).count() < LISTED {
        all.push(one);
    } else {
        *omitted += 1;
    }
}
