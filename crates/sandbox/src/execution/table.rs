//! What a session knows of its executions.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;

use crate::backend::ExecCommand;
use crate::{Error, ExecutionId, ExecutionStatus, KillReason, Report, Result};

/// Finished executions that are remembered.
const KEEP: usize = 1024;
/// Bytes of captured output that are remembered with them.
const KEEP_BYTES: usize = 8 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct ExecutionInfo {
    pub id: ExecutionId,
    pub status: ExecutionStatus,
    /// Of a finished execution, unless many others finished since.
    pub report: Option<Report>,
    /// Why there is no report, if it failed without one.
    pub error: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: HashMap<ExecutionId, Entry>,
    finished: VecDeque<ExecutionId>,
    /// The finished ones that still have their report, oldest first.
    reported: VecDeque<ExecutionId>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    info: ExecutionInfo,
    control: mpsc::UnboundedSender<ExecCommand>,
}

impl Table {
    pub fn add(&mut self, id: &ExecutionId, control: mpsc::UnboundedSender<ExecCommand>) {
        let info = ExecutionInfo {
            id: id.clone(),
            status: ExecutionStatus::Pending,
            report: None,
            error: None,
        };
        self.entries.insert(id.clone(), Entry { info, control });
    }

    pub fn started(&mut self, id: &ExecutionId) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.info.status = ExecutionStatus::Running;
        }
    }

    pub fn finish(&mut self, id: &ExecutionId, result: Result<&Report, &Error>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        match result {
            Ok(report) => {
                entry.info.status = report.status;
                entry.info.report = Some(report.clone());
                self.bytes += size(report);
                self.reported.push_back(id.clone());
            }
            Err(error) => {
                entry.info.status = ExecutionStatus::Failed;
                entry.info.error = Some(error.to_string());
            }
        }
        self.finished.push_back(id.clone());
        self.forget();
    }

    fn forget(&mut self) {
        while self.bytes > KEEP_BYTES && self.reported.len() > 1 {
            let Some(id) = self.reported.pop_front() else {
                break;
            };
            let entry = self.entries.get_mut(&id);
            if let Some(report) = entry.and_then(|entry| entry.info.report.take()) {
                self.bytes -= size(&report);
            }
        }
        while self.finished.len() > KEEP {
            let Some(id) = self.finished.pop_front() else {
                break;
            };
            if let Some(report) = self.entries.remove(&id).and_then(|entry| entry.info.report) {
                self.bytes -= size(&report);
                self.reported.retain(|other| *other != id);
            }
        }
    }

    pub fn get(&self, id: &ExecutionId) -> Option<&ExecutionInfo> {
        self.entries.get(id).map(|entry| &entry.info)
    }

    pub fn list(&self) -> impl Iterator<Item = &ExecutionInfo> {
        self.entries.values().map(|entry| &entry.info)
    }

    /// Asks one execution to end; says whether there was one to ask.
    pub fn kill(&self, id: &ExecutionId, reason: KillReason) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.kill(reason))
    }

    pub fn kill_all(&self, reason: &KillReason) {
        for entry in self.entries.values() {
            entry.kill(reason.clone());
        }
    }
}

impl Entry {
    fn kill(&self, reason: KillReason) -> bool {
        let open = matches!(
            self.info.status,
            ExecutionStatus::Pending | ExecutionStatus::Running
        );
        open && self.control.send(ExecCommand::Kill(reason)).is_ok()
    }
}

fn size(report: &Report) -> usize {
    report
        .outcome
        .as_ref()
        .map_or(0, |o| o.stdout.bytes.len() + o.stderr.bytes.len())
}
