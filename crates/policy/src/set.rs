//! The policies that hold together, and the decision they give.

use std::sync::{Arc, OnceLock};

use crate::command::Commands;
use crate::context::Request;
use crate::decision::{Action, Decider, Decision};
use crate::document::{Digest, Document, Verdict};
use crate::engine::{Answer, Engine, Fallback, Place};
use crate::folder;
use crate::scan::scan_python;
use crate::value::{Map, Value};

/// Checked policies, ready to decide. With none of them, everything is allowed that is asked.
#[derive(Debug)]
pub struct PolicySet {
    documents: Vec<Arc<Document>>,
    engine: Engine,
    commands: Commands,
    digest: OnceLock<Digest>,
    /// The path that policies of folders were put together for.
    folder: Option<String>,
}

/// By digest, which is over all that they mean.
impl PartialEq for PolicySet {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl PolicySet {
    /// Several documents are one list of rules; the first document's default counts.
    pub fn new(documents: Vec<Arc<Document>>) -> Self {
        let mut places: Vec<Place> = (documents.iter().enumerate())
            .flat_map(|(document, content)| {
                (0..content.rules.len()).map(move |rule| Place { document, rule })
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

    /// The policies of the folders from the root down to one path: what a folder says can be
    /// narrowed further down, and a denial can't be taken back. Nothing if none of them is for
    /// this path.
    pub fn in_folder(chain: &[Arc<Document>], path: &str) -> Option<Self> {
        let documents = folder::chain(chain, path);
        let last = documents.last()?;
        let fallback = Fallback {
            action: last.defaults.action.value,
            policy: Some("folder-scoped".into()),
        };
        let mut places = folder::merge(&documents);
        sort(&documents, &mut places);
        let folder = Some(path.to_owned());
        Some(Self::with(documents, &places, fallback, folder))
    }

    fn with(
        documents: Vec<Arc<Document>>,
        places: &[Place],
        fallback: Fallback,
        folder: Option<String>,
    ) -> Self {
        Self {
            digest: OnceLock::new(),
            engine: Engine::new(documents.clone(), places, fallback),
            commands: Commands::of(documents.iter().map(|document| &**document)),
            documents,
            folder,
        }
    }

    pub fn documents(&self) -> &[Arc<Document>] {
        &self.documents
    }

    /// Of all documents together; of one, its own.
    pub fn digest(&self) -> &Digest {
        self.digest.get_or_init(|| {
            let digests = self.documents.iter().map(|document| document.digest());
            Digest::of_all(digests, self.folder.is_some())
        })
    }

    pub(crate) fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the rules say to a context, as AGT's evaluator would.
    pub fn evaluate(&self, context: &Map) -> Answer {
        self.engine.evaluate(context)
    }

    /// The facts of a request, with those that the policies themselves lead to.
    pub fn context(&self, request: &Request<'_>) -> Map {
        let mut facts = request.context();
        if let (Some(path), None) = (self.folder(), request.path) {
            // What a caller added does not count: it is not what the policies were chosen for.
            facts.insert("path", path);
        }
        self.complete(&mut facts);
        facts
    }

    /// Adds the path that policies of folders were chosen for, and what a look at Python code
    /// found, if a rule asks for it.
    pub fn complete(&self, facts: &mut Map) {
        if let (Some(path), None) = (self.folder(), facts.get("path")) {
            facts.insert("path", path);
        }
        let language = facts.get("language").and_then(Value::as_text);
        let python = language.is_none_or(|language| language == "python");
        let code = facts.get("code").and_then(Value::as_text);
        if python
            && self.engine.asks_for("scan")
            && let Some(code) = code
        {
            let names = Value::from(scan_python(code.as_bytes()).names());
            facts.insert("scan", names);
        }
    }

    /// What the policies say about commands.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }
}

fn sort(documents: &[Arc<Document>], places: &mut [Place]) {
    // Stable: of equal priorities, the one that is written first stays first.
    places.sort_by_key(|place| {
        std::cmp::Reverse(documents[place.document].rules[place.rule].priority)
    });
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
                code: "policy.command".into(),
                rule: None,
                reason,
            };
        }
        let answer = self.evaluate(&self.context(request));
        let code = match (&answer.error, &answer.matched_rule) {
            (Some(_), _) => "policy.error",
            (None, Some(_)) => "policy.rule",
            (None, None) => "policy.default",
        };
        let reason = match answer.error {
            Some(error) => format!("{}: {error}", answer.reason),
            None => answer.reason,
        };
        Decision {
            allowed: answer.allowed,
            code: code.into(),
            rule: answer.matched_rule,
            reason,
        }
    }
}
