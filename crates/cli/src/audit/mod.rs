//! `brig audit`: the audit log.

mod export;
mod keys;
mod proofs;
mod prune;
mod show;
mod verify;

use std::path::{Path, PathBuf};

use brig_audit::verify::VerifyError;
use brig_audit::{Log, LogError};
use serde_json::json;

use crate::args::{AuditArgs, AuditCommand};
use crate::failure::Failure;
use crate::{json, recorder, state, write_out};

/// The check failed.
const WRONG: u8 = 1;

pub(crate) fn run(args: &AuditArgs) -> u8 {
    let as_json = match &args.command {
        AuditCommand::Show(args) => args.json,
        AuditCommand::Verify(args) => args.json,
        AuditCommand::CheckProof(args) => args.json,
        AuditCommand::Consistency(args) => args.json,
        AuditCommand::Head(args) => args.json,
        AuditCommand::RotateKey(args) => args.json,
        AuditCommand::Prune(args) => args.json,
        AuditCommand::Prove(_) | AuditCommand::Export(_) | AuditCommand::AgtChain(_) => false,
    };
    attempt(args).unwrap_or_else(|failure| {
        failure.report(as_json);
        failure.exit()
    })
}

fn attempt(args: &AuditArgs) -> Result<u8, Failure> {
    let log = || -> Result<PathBuf, Failure> {
        match &args.log {
            Some(path) => Ok(path.clone()),
            None => Ok(state::audit_directory(&state::directory()?)),
        }
    };
    let log_to_change = || {
        let path = log()?;
        state::of_this_user(&path)?;
        Ok::<_, Failure>(path)
    };
    match &args.command {
        AuditCommand::Show(args) => show::run(&log()?, args),
        AuditCommand::Verify(args) => verify::run(&log()?, args),
        AuditCommand::Prove(args) => proofs::prove(&log()?, args),
        AuditCommand::CheckProof(args) => proofs::check(log, args),
        AuditCommand::Consistency(args) => proofs::consistency(&log()?, args),
        AuditCommand::Head(args) => head(&log()?, args.json),
        AuditCommand::Export(args) => export::run(&log()?, args),
        AuditCommand::AgtChain(args) => export::agt_chain(args),
        AuditCommand::RotateKey(args) => rotate(&log_to_change()?, args.json),
        AuditCommand::Prune(args) => prune::run(&log_to_change()?, args),
    }
}

fn head(path: &Path, as_json: bool) -> Result<u8, Failure> {
    let snapshot = brig_audit::log::Snapshot::open(path)?;
    // Over all records. If nothing can be written, the newest existing head.
    let head = match Log::open(path, recorder::options()?) {
        Ok(log) => log.head()?,
        Err(error @ LogError::Io { .. }) => {
            let kept = snapshot.head().map(str::to_owned);
            kept.ok_or(error)?
        }
        Err(error) => return Err(error.into()),
    };
    if as_json {
        let parsed = brig_audit::Head::unverified(&head).map_err(LogError::from)?;
        json::print(&json!({
            "origin": parsed.origin,
            "size": parsed.size,
            "root": parsed.root.base64(),
            "head": head,
        }));
        return Ok(0);
    }
    Ok(write_out(head.as_bytes()))
}

fn rotate(path: &Path, as_json: bool) -> Result<u8, Failure> {
    // Do not create a log if there is none.
    brig_audit::log::Snapshot::open(path)?;
    let key = Log::open(path, recorder::options()?)?.rotate_key()?;
    if as_json {
        json::print(&json!({ "key": key.to_string() }));
        return Ok(0);
    }
    Ok(write_out(format!("{key}\n").as_bytes()))
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        let failure = Self::new(error.code(), error.to_string());
        let hint = match &error {
            LogError::NoLog(_) => Some("the first execution creates one".into()),
            other => other.hint(),
        };
        match hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

impl From<VerifyError> for Failure {
    fn from(fault: VerifyError) -> Self {
        Self::new(fault.code(), fault.to_string())
    }
}
