//! The tools that a server offers, and those of them that are registered.

use std::collections::BTreeSet;

use brig_tools::ToolName;
use rmcp::model::{PaginatedRequestParams, Tool};

use super::Connection;
use crate::SourceError;
use crate::text::clean;

/// The most tools of a server.
const MOST: usize = 512;
/// The most pages of its list: an empty one may be followed by another.
const PAGES: usize = 64;

/// A tool of a server, with its name here.
pub(super) struct Chosen {
    pub name: ToolName,
    pub tool: Tool,
}

/// Asks for all tools.
pub(super) async fn tools(connection: &Connection) -> Result<Vec<Tool>, SourceError> {
    let mut all = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES {
        connection.expect_answer().await;
        let page = PaginatedRequestParams::default().with_cursor(cursor.take());
        let listed = connection.client.list_tools(Some(page)).await;
        let listed = listed
            .map_err(|error| connection.error(&format!("it does not list its tools: {error}")))?;
        all.extend(listed.tools);
        if all.len() > MOST {
            return Err(connection.error(&format!("it has more than {MOST} tools")));
        }
        cursor = listed.next_cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
    Err(connection.error("the list of its tools does not end"))
}

/// Those that are wanted; all of them if none is named. A tool that can't be registered is an error, not left out: the
/// operator would look for it in vain.
pub(super) fn choose(
    server: &str,
    offered: Vec<Tool>,
    wanted: &[(String, ToolName)],
) -> Result<Vec<Chosen>, SourceError> {
    let mut names = BTreeSet::new();
    if let Some(twice) = offered
        .iter()
        .find(|tool| !names.insert(tool.name.as_ref()))
    {
        let name = clean(&twice.name, 128);
        return Err(super::failed(
            server,
            &format!("it lists the tool `{name}` twice"),
        ));
    }
    if wanted.is_empty() {
        let own = |tool: Tool| match ToolName::new(tool.name.clone()) {
            Ok(name) => Ok(Chosen { name, tool }),
            Err(invalid) => Err(SourceError::ServerTool {
                server: server.into(),
                invalid,
            }),
        };
        return offered.into_iter().map(own).collect();
    }
    let mut chosen = Vec::new();
    for (original, name) in wanted {
        let Some(tool) = offered.iter().find(|tool| tool.name == original.as_str()) else {
            let has: Vec<String> = offered
                .iter()
                .take(32)
                .map(|tool| clean(&tool.name, 128))
                .collect();
            let problem = format!("it has no tool `{original}`; it has {}", has.join(", "));
            return Err(super::failed(server, &problem));
        };
        chosen.push(Chosen {
            name: name.clone(),
            tool: tool.clone(),
        });
    }
    Ok(chosen)
}
