use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use brig_policy::{Answer, Explanation, Map, PolicySet, Value, load_facts};
use brig_sandbox::{AgentId, Backend, Error, InitialState, Limits, Plan, Request, SessionConfig};
use serde_json::json;

use super::load;
use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::{backend, escape, exit, json, table, units, write_out};

pub(crate) async fn run(args: &ExplainArgs) -> Result<u8, Failure> {
    let compat = args.compat.compat();
    let files = args.directory.or_files(&args.files)?;
    let policies = load::load(&files, compat)?.ok_or_else(|| Failure::usage("no policy given"))?;
    let mut context = Map::new();
    for given in &args.context {
        for (key, value) in facts(given)?.iter() {
            context.insert(key, value.clone());
        }
    }
    for (key, value) in load::facts(&args.fact).iter() {
        context.insert(key, value.clone());
    }
    policies.complete(&mut context);
    Ok(show(&policies, &context, args.json, 0).await)
}

/// What policies decide on a request that was not made. Exits with 126 if they deny it.
pub(crate) async fn request(
    policies: &Arc<PolicySet>,
    request: &Request,
    agent: &AgentId,
    as_json: bool,
) -> u8 {
    let mut context = request.question(agent).context();
    policies.complete(&mut context);
    show(policies, &context, as_json, exit::DENIED).await
}

/// Prints the explanation. Returns the exit code: `denied` if it is not allowed.
async fn show(policies: &Arc<PolicySet>, context: &Map, as_json: bool, denied: u8) -> u8 {
    let explanation = policies.explain(context);
    let forbidden = argv(context).and_then(|argv| policies.commands().forbids(&argv));
    // Of a backend that needs a service nothing is known without it.
    let backends = [BackendCheck::of(policies, backend::native().as_ref()).await];
    let allowed = explanation.answer.allowed && forbidden.is_none();
    let code = if allowed { 0 } else { denied };
    if as_json {
        let mut object = json!(explanation);
        object["command"] = json!(forbidden);
        object["backends"] = backends.iter().map(BackendCheck::json).collect();
        object["error"] = serde_json::Value::Null;
        json::print(&object);
        return code;
    }
    match write_out(text(&explanation, forbidden.as_deref(), &backends).as_bytes()) {
        0 => code,
        broken => broken,
    }
}

/// JSON on the command line, one fact, or the name of a file.
fn facts(given: &str) -> Result<Map, Failure> {
    if let Some((key, value)) = given.split_once('=')
        && !given.trim_start().starts_with('{')
        && !Path::new(given).exists()
    {
        return Ok(load::facts(&[(key.to_owned(), value.to_owned())]));
    }
    let (name, text) = if given.trim_start().starts_with('{') {
        ("context.json".to_owned(), given.as_bytes().to_vec())
    } else {
        (
            given.to_owned(),
            brig_sandbox::read_policy(Path::new(given))?,
        )
    };
    load_facts(&name, text).map_err(|problems| {
        load::show(&problems.0);
        Failure::usage("the context is invalid")
    })
}

/// The command that the command lists decide on.
fn argv(context: &Map) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_text().map(str::to_owned);
    match context.get("argv") {
        Some(Value::List(words)) => words.iter().map(text).collect(),
        _ => match context.get("program") {
            Some(program) => Some(vec![text(program)?]),
            None => {
                let line = context.get("command")?.as_text()?;
                Some(line.split_whitespace().map(str::to_owned).collect())
            }
        },
    }
}

/// What one backend can enforce of the policies.
struct BackendCheck {
    backend: String,
    problem: Option<Failure>,
    unmet: Vec<(&'static str, String)>,
}

impl BackendCheck {
    async fn of(policies: &Arc<PolicySet>, backend: &dyn Backend) -> Self {
        let plan = match SessionConfig::default().under(policies.clone()) {
            Ok(config) => Plan::make(&config, backend, InitialState::Empty).await,
            Err(error) => Err(error),
        };
        let (problem, unmet) = match plan {
            Ok(_) => (None, Vec::new()),
            Err(Error::Unenforceable(unmet)) => {
                let unmet = unmet.into_iter();
                (
                    None,
                    unmet
                        .map(|unmet| (unmet.control.name(), unmet.problem))
                        .collect(),
                )
            }
            Err(error) => (Some(Failure::from(error)), Vec::new()),
        };
        Self {
            backend: backend.id().to_string(),
            problem,
            unmet,
        }
    }

    fn json(&self) -> serde_json::Value {
        let unmet: Vec<_> = (self.unmet.iter())
            .map(|(control, problem)| json!({ "control": control, "problem": problem }))
            .collect();
        json!({
            "name": self.backend,
            "enforceable": self.unmet.is_empty() && self.problem.is_none(),
            "unmet": unmet,
            "problem": self.problem.as_ref().map(Failure::json),
        })
    }

    fn line(&self) -> String {
        let name = &self.backend;
        if let Some(problem) = &self.problem {
            return format!("{name}: {problem}");
        }
        if self.unmet.is_empty() {
            return format!("{name}: can enforce all of it");
        }
        let parts: Vec<String> = (self.unmet.iter())
            .map(|(control, problem)| format!("{control} ({problem})"))
            .collect();
        let names: Vec<&str> = self.unmet.iter().map(|(control, _)| *control).collect();
        format!(
            "{name}: cannot enforce {}; would run with --waive {}",
            parts.join(", "),
            names.join(",")
        )
    }
}

fn text(explanation: &Explanation, forbidden: Option<&str>, backends: &[BackendCheck]) -> String {
    let answer = &explanation.answer;
    let decision = decision(answer);
    let policy = answer.policy.as_deref().unwrap_or("none");
    let by = match (&answer.matched_rule, &answer.error) {
        (_, Some(error)) => format!("by an error: {error}"),
        (Some(rule), None) => format!("by rule `{rule}` of policy `{policy}`"),
        (None, None) => format!("by the default of policy `{policy}`"),
    };
    let mut text = String::new();
    let mut line = format!("{decision} {by}: {}", answer.reason);
    if let Some(forbidden) = forbidden {
        let denied = format!("denied as a command: {forbidden}");
        let _ = writeln!(text, "{}", escape::line(&denied));
        line.insert_str(0, "by the rules alone: ");
    }
    let _ = writeln!(text, "{}", escape::line(&line));
    let _ = writeln!(text, "policy {}", explanation.digest);
    let rules: Vec<[String; 5]> = (explanation.considered.iter())
        .map(|rule| {
            [
                rule.rule.clone(),
                rule.action.to_string(),
                rule.position.to_string(),
                rule.outcome.name().into(),
                rule.why.clone(),
            ]
        })
        .collect();
    if !rules.is_empty() {
        let _ = write!(
            text,
            "\n{}",
            table::text(["RULE", "ACTION", "POSITION", "OUTCOME", "WHY"], &rules)
        );
    }
    let limits: Vec<[String; 3]> = (explanation.effective.iter())
        .map(|effective| {
            let (value, from) = match (&effective.value, &effective.from) {
                (Value::Null, _) => (default(effective.name), "Brig's default".into()),
                (value, Some(from)) => (value.to_text().into_owned(), from.to_string()),
                (value, None) => (value.to_text().into_owned(), "default of policies".into()),
            };
            let from = match effective.enforced {
                true => from,
                false => format!("{from}; for the caller to enforce"),
            };
            [effective.name.into(), value, from]
        })
        .collect();
    let _ = write!(
        text,
        "\n{}",
        table::text(["EFFECTIVE", "VALUE", "FROM"], &limits)
    );
    text.push('\n');
    for backend in backends {
        let _ = writeln!(text, "{}", escape::line(&backend.line()));
    }
    text.push_str(&flips(explanation, forbidden));
    text
}

fn decision(answer: &Answer) -> &'static str {
    match (answer.allowed, answer.action.needs_approval()) {
        (true, _) => "allowed",
        (false, true) => "allowed only with approval",
        (false, false) => "denied",
    }
}

fn flips(explanation: &Explanation, forbidden: Option<&str>) -> String {
    if forbidden.is_some() {
        let also = match explanation.answer.allowed {
            true => "",
            false => ", and the rules too",
        };
        return format!("\nwould be allowed if the command lists allowed it{also}\n");
    }
    let mut text = String::new();
    if !explanation.flips.is_empty() {
        text.push('\n');
    }
    for flip in &explanation.flips {
        let decision = decision(&flip.answer);
        let _ = writeln!(
            text,
            "{}",
            escape::line(&format!("would be {decision} {}", flip.change))
        );
    }
    text
}

/// The limit that applies if no policy sets one.
fn default(name: &str) -> String {
    let limits = Limits::default();
    match name {
        "max_cpu" => limits.cpus.value.to_string(),
        "max_memory_mb" => units::size(limits.memory_bytes.value),
        "timeout_seconds" => format!("{} s", limits.timeout.value.as_secs()),
        "max_processes" => limits.processes.value.to_string(),
        "max_disk_mb" => units::size(limits.disk_bytes.value),
        "max_output_bytes" => units::size(limits.output_bytes.value),
        _ => String::new(),
    }
}
