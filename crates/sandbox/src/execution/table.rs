//! The executions of a session: all that run, and the newest that ended.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;

use super::ExecSignal;
use crate::{Error, ExecutionId, ExecutionStatus, KillReason, Report, Result};

/// Finished executions that are kept.
const KEEP: usize = 1024;
/// Bytes of captured output that are kept with them.
const KEEP_BYTES: usize = 8 * 1024 * 1024;

/// What a session knows of one of its executions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExecutionInfo {
    /// The id of the execution, as in records.
    pub id: ExecutionId,
    /// Its state.
    pub status: ExecutionStatus,
    /// Of a finished execution, unless many others finished since.
    pub report: Option<Report>,
    /// Why there is no report, if it failed without one.
    pub error: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: HashMap<ExecutionId, TableRow>,
    finished: VecDeque<ExecutionId>,
    /// The finished ones that still have their report, oldest first.
    reported: VecDeque<ExecutionId>,
    bytes: usize,
}

#[derive(Debug)]
struct TableRow {
    info: ExecutionInfo,
    signals: mpsc::UnboundedSender<ExecSignal>,
}

impl Table {
    pub(crate) fn add(&mut self, id: &ExecutionId, signals: mpsc::UnboundedSender<ExecSignal>) {
        let info = ExecutionInfo {
            id: id.clone(),
            status: ExecutionStatus::Pending,
            report: None,
            error: None,
        };
        self.rows.insert(id.clone(), TableRow { info, signals });
    }

    pub(crate) fn started(&mut self, id: &ExecutionId) {
        if let Some(row) = self.rows.get_mut(id) {
            row.info.status = ExecutionStatus::Running;
        }
    }

    pub(crate) fn finish(&mut self, id: &ExecutionId, result: Result<&Report, &Error>) {
        let Some(row) = self.rows.get_mut(id) else {
            return;
        };
        match result {
            Ok(report) => {
                row.info.status = report.status();
                // A report that is too large is not kept.
                if size(report) <= KEEP_BYTES {
                    row.info.report = Some(report.clone());
                    self.bytes += size(report);
                    self.reported.push_back(id.clone());
                }
            }
            Err(error) => {
                row.info.status = ExecutionStatus::Failed;
                row.info.error = Some(error.to_string());
            }
        }
        self.finished.push_back(id.clone());
        self.forget();
    }

    fn forget(&mut self) {
        while self.bytes > KEEP_BYTES {
            let Some(id) = self.reported.pop_front() else {
                break;
            };
            let row = self.rows.get_mut(&id);
            if let Some(report) = row.and_then(|row| row.info.report.take()) {
                self.bytes -= size(&report);
            }
        }
        while self.finished.len() > KEEP {
            let Some(id) = self.finished.pop_front() else {
                break;
            };
            if let Some(report) = self.rows.remove(&id).and_then(|row| row.info.report) {
                self.bytes -= size(&report);
                self.reported.retain(|other| *other != id);
            }
        }
    }

    pub(crate) fn get(&self, id: &ExecutionId) -> Option<&ExecutionInfo> {
        self.rows.get(id).map(|row| &row.info)
    }

    pub(crate) fn list(&self) -> impl Iterator<Item = &ExecutionInfo> {
        self.rows.values().map(|row| &row.info)
    }

    /// Ends an execution. False if it does not run.
    pub(crate) fn kill(&self, id: &ExecutionId, reason: KillReason) -> bool {
        self.rows.get(id).is_some_and(|row| row.kill(reason))
    }

    pub(crate) fn kill_all(&self, reason: &KillReason) {
        for row in self.rows.values() {
            row.kill(reason.clone());
        }
    }
}

impl TableRow {
    fn kill(&self, reason: KillReason) -> bool {
        let open = matches!(
            self.info.status,
            ExecutionStatus::Pending | ExecutionStatus::Running
        );
        open && self.signals.send(ExecSignal::Kill(reason)).is_ok()
    }
}

fn size(report: &Report) -> usize {
    report.outcome.stdout.bytes.len() + report.outcome.stderr.bytes.len()
}
