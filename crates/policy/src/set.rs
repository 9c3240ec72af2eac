//! Policies that apply together, and their decision.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brig_python_semantics::Map;
#[cfg(feature = "code-scan")]
use brig_python_semantics::Value;
use brig_reason::ReasonCode;

use crate::command::Commands;
use crate::context::Request;
use crate::decision::{Action, Decider, Decision};
use crate::directory;
use crate::document::{Digest, Document, Verdict};
use crate::engine::{Answer, Engine, Fallback, RuleIndex};

/// Checked policies, ready to decide. With none of them, everything is allowed that is asked.
#[derive(Debug)]
pub struct PolicySet {
    documents: Vec<Arc<Document>>,
    engine: Engine,
    commands: Commands,
    digest: OnceLock<Digest>,
    /// The path that policies of directories were merged for.
    directory: Option<String>,
}

/// By digest, which is over all that they mean.
impl PartialEq for PolicySet {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl PolicySet {
    /// Several documents are one list of rules; the first document's default counts. Where one of them needs an
    /// approval, each is also asked by itself, and the strictest answer holds.
    pub fn new(documents: Vec<Arc<Document>>) -> Self {
        let mut places: Vec<RuleIndex> = (documents.iter().enumerate())
            .flat_map(|(document, content)| {
                (0..content.rules.len()).map(move |rule| RuleIndex { document, rule })
            })
            .collect();
        sort(&documents, &mut places);
        let fallback = Fallback {
            action: documents
                .first()
                .map_or(Verdict::Allow, |first| first.defaults.action.value),
            policy: documents.first().map(|first| first.name.clone()),
        };
        Self::with(documents, &places, fallback, None)
    }

    /// The policies of the directories from the root down to one path. A lower directory can restrict
    /// more, and can't undo a denial. Nothing if none of them applies to this path.
    pub fn in_directory(chain: &[Arc<Document>], path: &str) -> Option<Self> {
        let documents = directory::chain(chain, path);
        let last = documents.last()?;
        let fallback = Fallback {
            action: last.defaults.action.value,
            policy: Some("folder-scoped".into()),
        };
        let mut places = directory::merge(&documents);
        sort(&documents, &mut places);
        let directory = Some(path.to_owned());
        Some(Self::with(documents, &places, fallback, directory))
    }

    fn with(
        documents: Vec<Arc<Document>>,
        places: &[RuleIndex],
        fallback: Fallback,
        directory: Option<String>,
    ) -> Self {
        Self {
            digest: OnceLock::new(),
            engine: Engine::new(documents.clone(), places, fallback),
            commands: Commands::of(documents.iter().map(|document| &**document)),
            documents,
            directory,
        }
    }

    /// The documents, in the order of their layers.
    pub fn documents(&self) -> &[Arc<Document>] {
        &self.documents
    }

    /// Of all documents together; of one, its own.
    pub fn digest(&self) -> &Digest {
        self.digest.get_or_init(|| {
            let digests = self.documents.iter().map(|document| document.digest());
            Digest::of_all(digests, self.directory.is_some())
        })
    }

    pub(crate) fn directory(&self) -> Option<&str> {
        self.directory.as_deref()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The answer of the rules to a context, as AGT's evaluator gives it.
    pub fn evaluate(&self, context: &Map) -> Answer {
        self.engine.evaluate(context)
    }

    /// The facts of a request, with those that the policies themselves lead to.
    pub fn context(&self, request: &Request<'_>) -> Map {
        let mut facts = request.context();
        if let (Some(path), None) = (self.directory(), request.path) {
            // What a caller added does not count: it is not what the policies were chosen for.
            facts.insert("path", path);
        }
        self.complete(&mut facts);
        facts
    }

    /// Adds the path that policies of directories were chosen for and, if a rule tests it, the result
    /// of a scan of Python code.
    pub fn complete(&self, facts: &mut Map) {
        if let (Some(path), None) = (self.directory(), facts.get("path")) {
            facts.insert("path", path);
        }
        #[cfg(feature = "code-scan")]
        self.scan_code(facts);
    }

    #[cfg(feature = "code-scan")]
    fn scan_code(&self, facts: &mut Map) {
        let language = facts.get("language").and_then(Value::as_text);
        let python = language.is_none_or(|language| language == "python");
        let code = facts.get("code").and_then(Value::as_text);
        if python
            && self.engine.asks_for("scan")
            && let Some(code) = code
        {
            let scan = brig_code_scan::scan_python(code.as_bytes());
            facts.insert("scan", scan.names());
        }
    }

    /// How long an approval is waited for: of several policies, the shortest time.
    pub fn approval_timeout(&self) -> Option<Duration> {
        let seconds = self
            .documents
            .iter()
            .map(|one| one.defaults.approval_timeout_seconds.value);
        seconds
            .min()
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs)
    }

    /// Whether the arguments of tool calls are recorded. Each policy has to say so.
    pub fn records_tool_arguments(&self) -> bool {
        !self.documents.is_empty() && self.documents.iter().all(|one| one.record_tool_arguments)
    }

    /// The command lists of the policies.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }
}

fn sort(documents: &[Arc<Document>], places: &mut [RuleIndex]) {
    // Stable: of equal priorities, the one that is written first stays first.
    let priority = |place: &RuleIndex| &documents[place.document].rules[place.rule].priority;
    places.sort_by(|a, b| priority(b).cmp(priority(a)));
}

impl Decider for PolicySet {
    fn policy_digest(&self) -> Option<String> {
        Some(self.digest().to_string())
    }

    fn decide(&self, request: &Request<'_>) -> Decision {
        if request.action == Action::Run
            && let Some(argv) = request.command
            && let Some(reason) = self.commands.forbids(argv)
        {
            return Decision {
                allowed: false,
                needs_approval: false,
                code: ReasonCode::PolicyCommand.into(),
                rule: None,
                reason,
            };
        }
        let answer = self.evaluate(&self.context(request));
        let code = match (&answer.error, &answer.matched_rule) {
            (Some(_), _) => ReasonCode::PolicyError,
            (None, _) if answer.action.needs_approval() => ReasonCode::PolicyApproval,
            (None, Some(_)) => ReasonCode::PolicyRule,
            (None, None) => ReasonCode::PolicyDefault,
        };
        let reason = match answer.error {
            Some(error) => format!("{}: {error}", answer.reason),
            None => answer.reason,
        };
        Decision {
            allowed: answer.allowed,
            needs_approval: answer.action.needs_approval(),
            code: code.into(),
            rule: answer.matched_rule,
            reason,
        }
    }
}
