//! `brig doctor`: what can be enforced here, by what, and how to fix the rest.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brig_audit::log::Snapshot;
use brig_config::{Defaults, UserConfig};
use brig_policy::Compat;
use brig_reason::ReasonCode;
use brig_sandbox::{
    Backend, Control, ControlState, Error, Finding, PolicyFiles, Request, Sandbox, SessionConfig,
    Strength,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::{ConfigArgs, DoctorArgs};
use crate::failure::{self, Failure};
use crate::policy::load;
use crate::{assemble, backend, escape, exit, json, state, table, units, user, write_out};

pub(crate) async fn run(args: &DoctorArgs) -> u8 {
    // As a run would do it: with the user's defaults, and not at all if they can't be read.
    let configuration = configuration();
    let defaults = match &configuration {
        Ok(config) => config.defaults().clone(),
        Err(_) => user::readable().defaults().clone(),
    };
    let default = (defaults.backend.clone()).unwrap_or_else(|| backend::DEFAULT.into());
    let mut checks = Vec::new();
    for (id, opened) in backend::all().await {
        checks.push(match opened {
            Ok(backend) => Check::of(backend, &defaults).await,
            Err(problem) => Check::failed(id.to_string(), problem),
        });
    }
    if !checks.iter().any(|check| check.name == default)
        && let Err(problem) = backend::choose(&default).await
    {
        checks.push(Check::failed(default.clone(), problem));
    }
    let state = state::writable().and_then(|state| configuration.map(|_| state));
    let chosen = checks.iter().find(|check| check.name == default);
    let usable = state.is_ok() && chosen.is_some_and(|check| check.problem.is_none());
    let written = if args.json {
        let backends: Vec<Value> = checks.iter().map(Check::json).collect();
        json::print(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "default_backend": default,
            "backends": backends,
            "state": {
                "path": state::directory().ok(),
                "problem": state.as_ref().err().map(Failure::json),
                "sessions": session_problems(),
            },
            "audit": log().map(|log| log.json()),
        }));
        0
    } else {
        let mut texts: Vec<String> = checks.iter().map(Check::text).collect();
        texts.push(meanings());
        if default != backend::DEFAULT {
            let default = escape::line(&default);
            texts.push(format!("default backend: {default} (your configuration)\n"));
        }
        texts.push(state_text(&state));
        texts.extend(session_problems().iter().map(|found| {
            let part = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
            let text = format!("{}: {}", part("path"), part("problem"));
            format!("  {}\n", escape::line(&failure::without_numbers(&text)))
        }));
        texts.extend(log().map(|log| log.text()));
        write_out(texts.join("\n").as_bytes())
    };
    if usable { written } else { exit::FAILED }
}

/// The user's configuration and its policy, which every run needs.
fn configuration() -> Result<UserConfig, Failure> {
    let store = user::store()?;
    let config = user::load(&store)?;
    load::load(
        &PolicyFiles::new(user::default_policy(&store, &config)),
        Compat::Strict,
    )?;
    Ok(config)
}

/// Where sessions and the audit log are, or why nothing can be run without it.
fn state_text(state: &Result<PathBuf, Failure>) -> String {
    match state {
        Ok(path) => format!(
            "state directory: {}\n",
            escape::line(&path.to_string_lossy())
        ),
        Err(problem) => {
            let hint = problem.hint().unwrap_or_default();
            format!("nothing can be run: {problem}\n  {}\n", escape::line(hint))
        }
    }
}

/// What is wrong with sessions in the state directory, if there is one.
fn session_problems() -> Vec<Value> {
    let Ok(path) = state::directory() else {
        return Vec::new();
    };
    if !path.join("sessions").exists() {
        return Vec::new();
    }
    let problems = assemble::sessions().and_then(|sessions| Ok(sessions.problems()?));
    match problems {
        Ok(problems) => problems.iter().map(|problem| json!(problem)).collect(),
        Err(problem) => vec![json!({ "path": path, "problem": problem.to_string() })],
    }
}

/// The audit log and its size.
struct LogSize {
    path: PathBuf,
    first: u64,
    signed: u64,
    segments: usize,
    bytes: u64,
    /// When it was last verified, and how much was not covered.
    verified: Option<Timestamp>,
    /// What a day adds to it, if it is older than a day and nothing was removed.
    bytes_per_day: Option<u64>,
}

/// The average growth of a log of this age.
fn growth(bytes: u64, age: Duration) -> Option<u64> {
    const DAY: u64 = 24 * 60 * 60;
    (age.as_secs() >= DAY).then(|| bytes.saturating_mul(DAY) / age.as_secs())
}

fn log() -> Option<LogSize> {
    let path = state::audit_directory(&state::directory().ok()?);
    let snapshot = Snapshot::open(&path).ok()?;
    let (records, segments) = snapshot.extent();
    let size = |name: &str| std::fs::metadata(path.join(name)).map_or(0, |found| found.len());
    let verified = std::fs::metadata(path.join("verified"));
    let verified = verified.and_then(|found| found.modified()).ok();
    let head = brig_audit::Head::unverified(snapshot.head()?).ok()?;
    let bytes = records + size("nodes");
    let made = std::fs::metadata(path.join("00000000000000000000.jsonl"));
    let made = made.and_then(|found| found.created());
    let age = made.ok().and_then(|made| made.elapsed().ok());
    let age = age.filter(|_| snapshot.first() == 0);
    Some(LogSize {
        bytes_per_day: age.and_then(|age| growth(bytes, age)),
        first: snapshot.first(),
        signed: head.size,
        segments,
        bytes,
        verified: verified.and_then(|at| at.try_into().ok()),
        path,
    })
}

/// The bytes of the audit log, if there is one.
pub(crate) fn log_bytes() -> Option<u64> {
    log().map(|log| log.bytes)
}

impl LogSize {
    fn json(&self) -> Value {
        json!({
            "path": self.path,
            "first_record": self.first,
            "signed_records": self.signed,
            "segments": self.segments,
            "bytes": self.bytes,
            "verified_at": self.verified,
            "bytes_per_day": self.bytes_per_day,
        })
    }

    fn text(&self) -> String {
        let verified = match self.verified {
            Some(at) => format!("; last verified, up to the newest segment, at {at:.0}"),
            None if self.segments > 1 => "; not verified yet: brig audit verify".into(),
            None => String::new(),
        };
        let growth = match self.bytes_per_day {
            Some(bytes) => format!(", {} a day on average", units::size(bytes)),
            None => String::new(),
        };
        let pruned = match self.first {
            0 => String::new(),
            first => format!(" ({first} pruned)"),
        };
        format!(
            "audit log: {}\n  {}{pruned} in {}, {}{growth}{verified}\n  kept until you remove old records: \
             brig audit prune --before 90d\n",
            escape::line(&self.path.to_string_lossy()),
            units::count(self.signed, "record"),
            units::count(self.segments, "segment"),
            units::size(self.bytes),
        )
    }
}

/// One backend on this machine.
struct Check {
    name: String,
    /// The reason if nothing can be run.
    problem: Option<Failure>,
    findings: Vec<Finding>,
    controls: Vec<ControlState>,
}

impl Check {
    async fn of(backend: Arc<dyn Backend>, defaults: &Defaults) -> Self {
        let findings = backend.findings(state::directory().ok().as_deref()).await;
        let id = backend.id().clone();
        let failed = |problem| Self {
            findings: findings.clone(),
            ..Self::failed(id.to_string(), problem)
        };
        let config = match ConfigArgs::default().session_config(defaults, &id.to_string()) {
            Ok(config) => config,
            Err(problem) => return failed(problem),
        };
        let mut controls = match backend.probe(&config).await {
            Ok(offer) => offer.controls.0,
            Err(cause) => {
                let backend = id.clone();
                return failed(Error::Unavailable { backend, cause }.into());
            }
        };
        controls.sort_by_key(|state| state.control);
        let problem = attempt(backend, config).await.err();
        if problem.is_some() {
            // Nothing is enforced where nothing runs.
            controls.clear();
        }
        Self {
            name: id.to_string(),
            problem,
            findings,
            controls,
        }
    }

    fn failed(name: String, problem: Failure) -> Self {
        Self {
            name,
            problem: Some(problem),
            findings: Vec::new(),
            controls: Vec::new(),
        }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "usable": self.problem.is_none(),
            "problem": self.problem.as_ref().map(Failure::json),
            "findings": self.findings,
            "controls": self.controls.iter().map(described).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let mut text = match &self.problem {
            None => format!("{}: can run code here\n", self.name),
            Some(problem) => format!("{}: cannot run code here: {problem}\n", self.name),
        };
        let rows: Vec<[String; 3]> = self
            .findings
            .iter()
            .map(|finding| {
                let mark = if finding.good { "ok" } else { "missing" };
                [finding.what.into(), mark.into(), finding.detail.clone()]
            })
            .collect();
        if !rows.is_empty() {
            let _ = write!(text, "\n{}", table::text(["MACHINE", "", ""], &rows));
        }
        if !self.controls.is_empty() {
            let _ = write!(text, "\n{}", lines(&self.controls));
        }
        let fixes = self.fixes();
        if !fixes.is_empty() {
            text.push_str("\nhow to fix it:\n");
        }
        for fix in fixes {
            let _ = writeln!(text, "  {}", escape::line(&fix));
        }
        text
    }

    /// Each step once, with all controls that it fixes.
    fn fixes(&self) -> Vec<String> {
        let problem = self.problem.as_ref().and_then(Failure::hint);
        let problem = problem.map(|hint| (self.name.as_str(), hint)).into_iter();
        let findings = self
            .findings
            .iter()
            .filter_map(|finding| Some((finding.what, finding.fix.as_deref()?)));
        let controls = self
            .controls
            .iter()
            .filter_map(|state| Some((state.control.name(), state.fix.as_deref()?)));
        let mut fixes: Vec<(&str, Vec<&str>)> = Vec::new();
        for (what, fix) in problem.chain(findings).chain(controls) {
            match fixes.iter_mut().find(|(known, _)| *known == fix) {
                Some((_, whats)) => whats.push(what),
                None => fixes.push((fix, vec![what])),
            }
        }
        fixes
            .into_iter()
            .map(|(fix, whats)| format!("{}: {fix}", whats.join(", ")))
            .collect()
    }
}

/// A control with its meaning.
fn described(state: &ControlState) -> Value {
    let mut object = json!(state);
    object["meaning"] = json!(state.control.meaning());
    object
}

/// What each control means, whatever enforces it.
fn meanings() -> String {
    let rows = Control::ALL.map(|control| [control.name().into(), control.meaning().into()]);
    table::text(["CONTROL", "MEANING"], &rows)
}

/// Runs a program: the only proof that code can be run.
async fn attempt(backend: Arc<dyn Backend>, config: SessionConfig) -> Result<(), Failure> {
    let agent = "doctor".parse()?;
    let sandbox = Sandbox::builder(backend).build()?;
    let report = sandbox
        .run_once(&agent, config, Request::command(["true"]))
        .await?;
    if !report.outcome.success() {
        let problem = "the test program `true` did not succeed";
        return Err(Failure::new(ReasonCode::BackendSetup, problem));
    }
    Ok(())
}

/// What enforces each control, and how strongly.
pub(crate) fn lines(controls: &[ControlState]) -> String {
    let rows: Vec<[String; 3]> = controls
        .iter()
        .map(|state| {
            [
                state.control.name().into(),
                strength(state.strength),
                state.by.clone(),
            ]
        })
        .collect();
    table::text(["CONTROL", "STRENGTH", "BY"], &rows)
}

pub(crate) fn strength(strength: Strength) -> String {
    match strength {
        Strength::Enforced => "enforced",
        Strength::Observed => "observed",
        Strength::Absent => "absent",
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_known_after_a_day() {
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        assert_eq!(growth(1000, hours(23)), None);
        assert_eq!(growth(1000, hours(24)), Some(1000));
        assert_eq!(growth(1000, hours(240)), Some(100));
    }
}
