//! The tools that code in a sandbox may call: which they are, and the gate that every call passes.

mod gate;
mod message;
mod schema;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brig_policy::{Document, PolicySet};
use brig_tools::{Tool, ToolName, ToolRegistry, ToolSpec};
use serde_json::Value;

pub(crate) use gate::Caller;
pub use gate::{CallError, ToolGate, Turn};

use self::schema::Schema;
use crate::{Error, Result};

/// The most bytes of the arguments of one call.
pub const MAX_ARGUMENTS: usize = 1024 * 1024;
/// The most bytes of the result of one call.
pub const MAX_RESULT: usize = 4 * 1024 * 1024;
/// Calls of one execution at one time. Others wait.
const AT_ONCE: usize = 16;
/// Requests for an approval of one execution that wait at one time. Others wait before they are asked.
const ASKING_AT_ONCE: usize = 8;
/// How long a call may take if its tool sets no limit of its own.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Checks the arguments of a call as the gate does, for who calls a tool outside of any sandbox.
///
/// # Errors
///
/// If they do not match the schema of the tool, or it has none that can be used.
pub fn check_arguments(spec: &ToolSpec, arguments: &Value) -> std::result::Result<(), String> {
    match Schema::new(&spec.input_schema)?.problem(arguments) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// The tools that the policies of one sandbox allow.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    tools: Arc<BTreeMap<ToolName, AllowedTool>>,
    /// Calls of one execution.
    max_calls: u64,
}

#[derive(Debug)]
struct AllowedTool {
    tool: Arc<dyn Tool>,
    arguments: Schema,
    result: Option<Schema>,
}

impl ToolSet {
    /// What every policy lists. Without a policy nothing is listed. A name that nobody registered is an error.
    pub(crate) fn of(registry: &ToolRegistry, policies: Option<&PolicySet>) -> Result<Self> {
        let documents = policies.map_or(&[][..], PolicySet::documents);
        for given in documents.iter().flat_map(|one| one.tool_allowlist()) {
            if registry.get(&given.value).is_none() {
                return Err(unregistered(registry, &given.value));
            }
        }
        let lists = |document: &Arc<Document>, name: &ToolName| {
            let mut listed = document.tool_allowlist().iter();
            listed.any(|given| given.value == name.as_str())
        };
        let mut tools = BTreeMap::new();
        for tool in registry.iter() {
            let name = &tool.spec().name;
            if !documents.is_empty() && documents.iter().all(|one| lists(one, name)) {
                tools.insert(name.clone(), AllowedTool::new(tool)?);
            }
        }
        let calls = documents
            .iter()
            .map(|one| one.defaults().max_tool_calls.value);
        let max_calls = calls.min().unwrap_or(0);
        Ok(Self {
            tools: Arc::new(tools),
            max_calls: u64::try_from(max_calls).unwrap_or(0),
        })
    }

    /// Whether code may call nothing.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// What code may call, in the order of the names.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.values().map(|allowed| allowed.tool.spec())
    }
}

impl AllowedTool {
    fn new(tool: &Arc<dyn Tool>) -> Result<Self> {
        let spec = tool.spec();
        let compiled = |what: &str, schema: &Value| {
            Schema::new(schema).map_err(|error| Error::InvalidConfig {
                what: "tool",
                problem: format!("the schema of the {what} of `{}`: {error}", spec.name),
            })
        };
        let result = spec.output_schema.as_ref();
        Ok(Self {
            arguments: compiled("arguments", &spec.input_schema)?,
            result: result
                .map(|schema| compiled("result", schema))
                .transpose()?,
            tool: Arc::clone(tool),
        })
    }
}

fn unregistered(registry: &ToolRegistry, name: &str) -> Error {
    let nearest: Vec<_> = registry.nearest(name).into_iter().collect();
    let known: Vec<_> = registry.iter().map(|tool| &tool.spec().name).collect();
    let list = |names: &[&ToolName]| {
        let names = names.iter().map(|name| format!("`{name}`"));
        names.collect::<Vec<_>>().join(", ")
    };
    let help = match (nearest.is_empty(), known.is_empty()) {
        (false, _) => format!("did you mean {}?", list(&nearest)),
        (true, false) => format!("registered are {}", list(&known)),
        (true, true) => "register it (on the command line: --tool NAME=COMMAND), or waive the control `tools` to run \
                         without tools"
            .to_owned(),
    };
    Error::InvalidConfig {
        what: "tool_allowlist",
        problem: format!("no tool is named `{}`; {help}", name.escape_default()),
    }
}

#[cfg(test)]
mod tests;
