//! The server: which request is answered by what.

use std::time::Duration;

use brig_policy::Extra;
use brig_sandbox::Attempted;
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arguments::{self, EndSession};
use crate::calls::Calls;
use crate::error::ToolError;
use crate::resources::Outputs;
use crate::run::either;
use crate::sessions::Sessions;
use crate::{Setup, describe, files, resources, tools};

/// What is done for one client.
#[derive(Debug)]
pub(crate) struct Server {
    pub sessions: Sessions,
    pub outputs: Outputs,
    pub facts: Extra,
    /// How long a call may run: by default, and at most.
    pub timeouts: (Duration, Duration),
    /// How long a session is kept that is not used.
    pub idle: Duration,
    /// How many bytes of each stream are shown.
    pub shown: usize,
    pub denials: fn(&Attempted) -> Value,
    /// Cancelled when everything has to end.
    pub stop: CancellationToken,
    pub policy: String,
    pub enforcement: String,
    /// Counts the calls that are being carried out.
    pub tracker: TaskTracker,
    calls: Calls,
    tools: Vec<Tool>,
    info: ServerConfig,
}

impl Server {
    pub(crate) fn new(setup: Setup, stop: CancellationToken) -> Self {
        let tools = tools::all(&setup);
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        let info = ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("brig", &setup.version).with_title("Brig"))
            .with_instructions(instructions(&setup));
        Self {
            timeouts: tools::timeouts(&setup),
            idle: setup.idle,
            shown: setup.shown,
            policy: policy(&setup),
            enforcement: describe::enforcement(&setup.plan),
            sessions: Sessions::new(setup.sandbox, setup.agent, setup.config, setup.operator),
            outputs: Outputs::default(),
            facts: setup.facts,
            denials: setup.denials,
            stop,
            tracker: TaskTracker::new(),
            calls: Calls::default(),
            tools,
            info,
        }
    }

    async fn carry_out(
        &self,
        call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let given = call.arguments;
        let _turn = tokio::select! {
            biased;
            () = either(&context.ct, &self.stop) => return Err(ToolError::cancelled()),
            turn = self.calls.turn() => turn?,
        };
        match &*call.name {
            "run_code" => self.run_code(arguments::read(given)?, context).await,
            "run_command" => self.run_command(arguments::read(given)?, context).await,
            "write_file" => files::write_file(&self.sessions, arguments::read(given)?).await,
            "read_file" => files::read_file(&self.sessions, arguments::read(given)?).await,
            "list_files" => files::list_files(&self.sessions, arguments::read(given)?).await,
            _ => self.end_session(arguments::read(given)?).await,
        }
    }

    async fn end_session(&self, arguments: EndSession) -> Result<CallToolResult, ToolError> {
        let ended = self.sessions.end(arguments.session.id()).await?;
        Ok(CallToolResult::structured(json!({ "ended": ended })))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        self.info.clone()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let all = ListToolsResult::with_all_items(self.tools.clone());
        Ok(all.with_cache_scope(CacheScope::Private))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.tools.iter().any(|tool| tool.name == call.name) {
            let problem = format!("no tool `{}`", crate::text::line(&call.name));
            return Err(ErrorData::invalid_params(problem, None));
        }
        let _counted = self.tracker.token();
        let done = self.carry_out(call, &context).await;
        Ok(done.unwrap_or_else(|error| error.result()).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = ListResourcesResult::with_all_items(self.resources().await);
        Ok(all.with_cache_scope(CacheScope::Private))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let all = ListResourceTemplatesResult::with_all_items(resources::templates());
        Ok(all.with_cache_scope(CacheScope::Private))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = self.resource(&request.uri).await?;
        let result = ReadResourceResult::new(vec![contents]);
        Ok(result.with_cache_scope(CacheScope::Private).into())
    }
}

fn instructions(setup: &Setup) -> String {
    format!(
        "Runs code and commands in a sandbox. {} What the policy denies stays denied: only the operator can \
         change it, not the arguments of a call.",
        describe::sandbox(&setup.plan)
    )
}

/// The policies, and the limits that follow from them and from the operator's flags.
fn policy(setup: &Setup) -> String {
    let plan = &setup.plan;
    let hosts = (plan.network().layers.iter())
        .flat_map(|layer| &layer.allow)
        .map(ToString::to_string);
    let tools = plan.tools().specs().map(|spec| {
        json!({
            "name": spec.name,
            "description": spec.description,
            "input_schema": spec.input_schema,
        })
    });
    let object = json!({
        "policies": setup.config.policies(),
        "limits": plan.limits(),
        "tools": Value::from_iter(tools),
        "network": {"open": plan.network().open, "allowed": hosts.collect::<Vec<_>>()},
    });
    serde_json::to_string_pretty(&object).unwrap_or_default()
}
