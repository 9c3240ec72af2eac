//! `brig doctor`: what can be held here, by what, and what would mend the rest.

use std::fmt::Write;
use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::{
    Backend, ControlState, Finding, Limits, Request, Sandbox, SessionConfig, Strength,
};
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::{escape, exit, json, table, write_out};

pub async fn run(args: &DoctorArgs) -> u8 {
    let native = NativeBackend::new();
    let findings = native.report();
    let checks = [
        Check::of(Arc::new(native), findings).await,
        #[cfg(feature = "docker")]
        docker().await,
    ];
    let usable = checks.iter().any(|check| check.problem.is_none());
    let written = if args.json {
        let backends: Vec<Value> = checks.iter().map(Check::json).collect();
        json::print(&json!({ "version": env!("CARGO_PKG_VERSION"), "backends": backends }));
        0
    } else {
        let texts: Vec<String> = checks.iter().map(Check::text).collect();
        write_out(texts.join("\n").as_bytes())
    };
    if usable { written } else { exit::FAILED }
}

/// One backend on this machine.
struct Check {
    name: &'static str,
    /// Why nothing can be run, if so.
    problem: Option<Failure>,
    findings: Vec<Finding>,
    controls: Vec<ControlState>,
}

impl Check {
    async fn of(backend: Arc<dyn Backend>, findings: Vec<Finding>) -> Self {
        let mut controls = backend.controls(&Limits::default()).0;
        controls.sort_by_key(|state| state.control);
        Self {
            name: backend.name(),
            problem: attempt(backend).await.err(),
            findings,
            controls,
        }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "usable": self.problem.is_none(),
            "problem": self.problem.as_ref().map(Failure::json),
            "findings": self.findings,
            "controls": self.controls,
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
            let _ = write!(text, "\n{}", lines(&self.controls));
        }
        let mends = self.mends();
        if !mends.is_empty() {
            text.push_str("\nwhat would mend it:\n");
        }
        for mend in mends {
            let _ = writeln!(text, "  {}", escape::line(&mend));
        }
        text
    }

    /// Each step once, with everything it is good for.
    fn mends(&self) -> Vec<String> {
        let problem = self.problem.as_ref().and_then(Failure::hint);
        let problem = problem.map(|hint| (self.name, hint)).into_iter();
        let findings = self
            .findings
            .iter()
            .filter_map(|finding| Some((finding.what, finding.mend.as_deref()?)));
        let controls = self
            .controls
            .iter()
            .filter_map(|state| Some((state.control.name(), state.mend.as_deref()?)));
        let mut mends: Vec<(&str, Vec<&str>)> = Vec::new();
        for (what, mend) in problem.chain(findings).chain(controls) {
            match mends.iter_mut().find(|(known, _)| *known == mend) {
                Some((_, whats)) => whats.push(what),
                None => mends.push((mend, vec![what])),
            }
        }
        mends
            .into_iter()
            .map(|(mend, whats)| format!("{}: {mend}", whats.join(", ")))
            .collect()
    }
}

#[cfg(feature = "docker")]
async fn docker() -> Check {
    match crate::backend::docker().await {
        Ok(docker) => {
            let findings = docker.report();
            Check::of(Arc::new(docker), findings).await
        }
        Err(problem) => Check {
            name: "docker",
            problem: Some(problem),
            findings: Vec::new(),
            controls: Vec::new(),
        },
    }
}

/// The only proof that code can be run is to run some.
async fn attempt(backend: Arc<dyn Backend>) -> Result<(), Failure> {
    let agent = "doctor".parse()?;
    let sandbox = Sandbox::builder(backend).build()?;
    let report = sandbox
        .run_once(&agent, SessionConfig::default(), Request::command(["true"]))
        .await?;
    match report.outcome {
        Some(outcome) if outcome.success() => Ok(()),
        _ => Err(Failure::new(
            "backend.setup",
            "`true` did not run to its end",
        )),
    }
}

/// What holds each control, and how strongly.
pub fn lines(controls: &[ControlState]) -> String {
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

fn strength(strength: Strength) -> String {
    match strength {
        Strength::Enforced => "enforced",
        Strength::Observed => "observed",
        Strength::Absent => "absent",
    }
    .into()
}
