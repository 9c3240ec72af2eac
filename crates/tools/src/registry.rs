//! The tools of one sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Tool, ToolName};

/// How alike two names must be to be suggested, from 0 to 1.
const ALIKE: f64 = 0.8;

/// The tools of one sandbox, by name.
#[derive(Clone, Debug, Default)]
pub struct ToolRegistry {
    tools: BTreeMap<ToolName, Arc<dyn Tool>>,
}

/// A second tool with a name that is taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("two tools are named `{name}`: {first}, and {second}")]
pub struct DuplicateTool {
    /// The name of both.
    pub name: ToolName,
    /// Where the first one comes from.
    pub first: String,
    /// Where the second one comes from.
    pub second: String,
}

impl ToolRegistry {
    /// Adds a tool.
    ///
    /// # Errors
    ///
    /// If its name is taken.
    pub fn insert(&mut self, tool: Arc<dyn Tool>) -> Result<(), DuplicateTool> {
        let spec = tool.spec();
        if let Some(first) = self.tools.get(&spec.name) {
            return Err(DuplicateTool {
                name: spec.name.clone(),
                first: first.spec().source.clone(),
                second: spec.source.clone(),
            });
        }
        self.tools.insert(spec.name.clone(), tool);
        Ok(())
    }

    /// Adds a tool of any type.
    ///
    /// # Errors
    ///
    /// If its name is taken.
    pub fn add(&mut self, tool: impl Tool + 'static) -> Result<(), DuplicateTool> {
        self.insert(Arc::new(tool))
    }

    /// The tool with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// All tools, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Names that look like this one, most alike first.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Vec<&ToolName> {
        let alike = |known: &ToolName| strsim::jaro_winkler(known.as_str(), name);
        let mut names: Vec<_> = self
            .tools
            .keys()
            .map(|known| (alike(known), known))
            .filter(|(alike, _)| *alike >= ALIKE)
            .collect();
        names.sort_by(|a, b| b.0.total_cmp(&a.0));
        names.into_iter().map(|(_, name)| name).take(3).collect()
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use serde_json::Value;

    use super::*;
    use crate::{Arguments, ToolError, ToolSpec};

    #[derive(Debug)]
    struct Echo(ToolSpec);

    #[async_trait]
    impl Tool for Echo {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        async fn call(&self, arguments: Arguments) -> Result<Value, ToolError> {
            Ok(arguments.into())
        }
    }

    fn echo(name: &str) -> Arc<dyn Tool> {
        let name = ToolName::new(name).expect("a name");
        Arc::new(Echo(ToolSpec::new(name, "answers what it is given")))
    }

    #[test]
    fn names_are_unique_and_similar_ones_are_suggested() {
        let mut registry = ToolRegistry::default();
        for name in ["fetch_arxiv", "fetch_page", "summarize"] {
            registry.insert(echo(name)).expect(name);
        }
        let error = registry.insert(echo("summarize")).expect_err("taken");
        assert_eq!(error.name.as_str(), "summarize");
        assert_eq!(registry.len(), 3);
        assert!(registry.get("fetch_arxiv").is_some());
        assert_eq!(registry.nearest("fetch_arxvi")[0].as_str(), "fetch_arxiv");
        assert!(registry.nearest("zzz").is_empty());
    }
}
