//! What an execution requests of the network, commands and tools. Each attempt is recorded before it
//! is answered, and is kept for the receipt and the report.

mod programs;
mod tally;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use brig_audit::fit;
use brig_audit::receipt::{self, Omitted, Totals};
use brig_audit::{Approval, ApprovalRequested, Command, Egress, Event as Fact, Recorder, Tool};
use brig_hosts::Host;
use brig_reason::ReasonCode;
use tokio::sync::Notify;

use self::programs::{NOT_STARTED, Programs};
use self::tally::{Full, Tally};
use crate::shared::{SessionKey, lock};
use crate::{Error, ExecutionId, Result};

/// How many attempts of each kind are listed: as many that were allowed as were denied.
const LISTED: usize = 25;
/// How many different programs are listed.
const PROGRAMS: usize = 1000;
/// Arguments of a command that are kept, and their length in all, as they are written.
const ARGUMENTS: usize = 64;
const ALL_ARGUMENTS: usize = 4096;
/// Of one text: characters, and bytes as they are written. Escaped, a character may take six.
const LONGEST: usize = 256;
const WRITTEN: usize = 512;
/// Of a text that explains, in bytes as they are written.
const EXPLAINED: usize = 2048;

/// Where a backend reports what one execution attempts. On an error the attempt must not succeed;
/// the execution is ended as well.
#[derive(Debug)]
pub struct Attempts {
    session: SessionKey,
    execution: ExecutionId,
    /// Values of environment variables, which must not appear in a record.
    secrets: Vec<String>,
    recorder: Arc<dyn Recorder>,
    state: Mutex<State>,
    unrecorded: Notify,
}

#[derive(Debug, Default)]
struct State {
    listed: Attempted,
    tally: Tally,
    programs: Programs,
    /// Why an attempt could not be recorded.
    failed: Option<brig_audit::RecordError>,
}

/// The attempts of one execution: the first of each kind of tool call, and the most important of the
/// rest.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attempted {
    /// Requests for the network.
    pub egress: Vec<Egress>,
    /// Requests to start a program.
    pub commands: Vec<Command>,
    /// Calls of tools.
    pub tools: Vec<Tool>,
    /// How many more there were.
    pub omitted: Omitted,
    /// All of the network.
    pub totals: Totals,
    /// All programs that were started, each once.
    pub programs: BTreeSet<String>,
}

impl Attempts {
    pub(crate) fn new(
        session: SessionKey,
        execution: ExecutionId,
        mut secrets: Vec<String>,
        recorder: Arc<dyn Recorder>,
    ) -> Self {
        // Host names are recorded in their normal form.
        let as_hosts = secrets.iter().filter_map(|secret| Host::parse(secret).ok());
        let as_hosts: Vec<String> = as_hosts.map(|host| host.to_string()).collect();
        secrets.extend(as_hosts);
        Self {
            session,
            execution,
            secrets,
            recorder,
            state: Mutex::default(),
            unrecorded: Notify::new(),
        }
    }

    /// A connection, or a name to look up.
    pub fn egress(&self, mut egress: Egress) -> Result<()> {
        self.shorten(&mut egress);
        let counted = lock(&self.state).tally.decided(&egress);
        match counted {
            Ok(true) => self.record(Fact::EgressDecided(egress)),
            // It is counted in the total of its row.
            Ok(false) => Ok(()),
            Err(Full) => {
                let full = "there were too many different hosts";
                egress.allowed = false;
                egress.code = ReasonCode::NetworkUnrecorded.into();
                egress.detail = Some(full.into());
                self.egress(egress)?;
                Err(Error::Record(brig_audit::RecordError::new(full)))
            }
        }
    }

    /// A connection has ended.
    pub fn egress_closed(&self, mut egress: Egress) -> Result<()> {
        self.shorten(&mut egress);
        let apart = lock(&self.state).tally.closed(&egress);
        match apart {
            true => self.record(Fact::EgressClosed(egress)),
            false => Ok(()),
        }
    }

    fn shorten(&self, egress: &mut Egress) {
        egress.host = self.short(&egress.host);
        egress.detail = egress.detail.take().map(|detail| self.short(&detail));
    }

    /// A program that was asked for.
    pub fn command(&self, mut command: Command) -> Result<()> {
        command.program = self.short(&command.program);
        command.arguments.truncate(ARGUMENTS);
        let mut left = ALL_ARGUMENTS;
        for argument in &mut command.arguments {
            *argument = fit::shorten(&self.short(argument), left);
            left = left.saturating_sub(fit::written(argument));
        }
        for text in [&mut command.path, &mut command.parent, &mut command.caller] {
            *text = text.take().map(|text| self.short(&text));
        }
        if lock(&self.state).programs.attempted(&command) {
            self.record(Fact::CommandAttempted(command.clone()))?;
        }
        let listed = &mut lock(&self.state).listed;
        let started = command.allowed && !NOT_STARTED.contains(&command.code.as_str());
        if started && listed.programs.len() < PROGRAMS {
            let relative = command.program.contains('/') && !command.program.starts_with('/');
            let program = command.path.as_ref().filter(|_| relative);
            let program = program.unwrap_or(&command.program);
            listed.programs.insert(program.clone());
        }
        Ok(())
    }

    /// Somebody is asked to approve the execution, or a call of it.
    pub(crate) fn approval_requested(&self, mut asked: ApprovalRequested) -> Result<()> {
        asked.name = self.short(&asked.name);
        self.record(Fact::ApprovalRequested(asked))
    }

    /// What came of it. Returns what was recorded.
    pub(crate) fn approval_answered(&self, mut approval: Approval) -> Result<Approval> {
        approval.by = approval.by.map(|by| self.short(&by));
        approval.reason = approval.reason.map(|reason| self.explain(&reason));
        self.record(Fact::ApprovalAnswered(approval.clone()))?;
        Ok(approval)
    }

    /// A call of a tool.
    pub fn tool(&self, mut tool: Tool) -> Result<()> {
        tool.tool = self.short(&tool.tool);
        tool.arguments = tool.arguments.map(|arguments| self.explain(&arguments));
        self.record(Fact::ToolCalled(tool.clone()))?;
        let listed = &mut lock(&self.state).listed;
        let count = &mut listed.omitted.tools;
        list(&mut listed.tools, tool, |one| one.allowed, count);
        Ok(())
    }

    fn record(&self, fact: Fact) -> Result<()> {
        let record = self.session.record(Some(&self.execution), fact);
        self.recorder.note(record).map_err(|error| {
            lock(&self.state).failed = Some(error.clone());
            self.unrecorded.notify_one();
            Error::Record(error)
        })
    }

    /// Without secrets, and of bounded length.
    fn short(&self, text: &str) -> String {
        let text = self.redact(text);
        let text = match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        };
        fit::shorten(&text, WRITTEN)
    }

    /// As [`Self::redact`], and of a bounded length.
    pub(crate) fn explain(&self, text: &str) -> String {
        fit::shorten(&self.redact(text), EXPLAINED)
    }

    pub(crate) fn redact(&self, text: &str) -> String {
        receipt::redact(text, &self.secrets())
    }

    pub(crate) fn secrets(&self) -> Vec<&str> {
        self.secrets.iter().map(String::as_str).collect()
    }

    pub(crate) fn listed(&self) -> Attempted {
        let state = lock(&self.state);
        let (egress, omitted) = state.tally.listed(LISTED);
        let (commands, more_commands) = state.programs.listed(LISTED);
        let mut listed = state.listed.clone();
        listed.egress = egress;
        listed.omitted.egress = omitted;
        listed.commands = commands;
        listed.omitted.commands = more_commands;
        listed.totals = state.tally.totals;
        listed
    }

    /// The totals of attempts without a record of their own.
    pub(crate) fn unrecorded_totals(&self) -> Vec<Fact> {
        let state = lock(&self.state);
        let egress = state
            .tally
            .unrecorded_totals()
            .into_iter()
            .map(Fact::EgressTotal);
        let commands = state.programs.unrecorded_totals().into_iter();
        egress.chain(commands.map(Fact::CommandTotal)).collect()
    }

    /// Returns when something could not be recorded.
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
