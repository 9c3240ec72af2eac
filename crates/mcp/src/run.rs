//! `run_code` and `run_command`.

use std::io::Cursor;
use std::time::Duration;

use brig_reason::ReasonCode;
use brig_sandbox::{Event, ExecutionHandle, Language, Report, Request, TraceParent};
use rmcp::model::{CallToolResult, ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext, RoleServer};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::arguments::{RunCode, RunCommand, Seconds, SessionName};
use crate::capture::Capture;
use crate::error::ToolError;
use crate::results::Finished;
use crate::server::Server;
use crate::sessions::InUse;

/// How often progress is reported.
const PROGRESS: Duration = Duration::from_secs(1);

impl Server {
    pub(crate) async fn run_code(
        &self,
        arguments: RunCode,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let language = arguments.language.map_or(Language::Python, Into::into);
        let request = Request::code(language, arguments.code);
        self.run(request, arguments.session, arguments.timeout, context)
            .await
    }

    pub(crate) async fn run_command(
        &self,
        arguments: RunCommand,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        let wrong = |problem: &str| ToolError::new(ReasonCode::McpArguments, problem);
        let argv = match (arguments.command, arguments.argv) {
            (Some(line), None) => vec!["bash".to_owned(), "-c".to_owned(), line],
            (None, Some(argv)) if !argv.is_empty() => argv,
            _ => return Err(wrong("give one of command and argv")),
        };
        let mut request = Request::command(argv);
        request.cwd = arguments.cwd;
        request.env = arguments.env.unwrap_or_default().into_iter().collect();
        if let Some(text) = arguments.stdin {
            request.stdin = Some(Box::new(Cursor::new(text.into_bytes())));
        }
        self.run(request, arguments.session, arguments.timeout, context)
            .await
    }

    async fn run(
        &self,
        mut request: Request,
        session: Option<SessionName>,
        timeout: Option<Seconds>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        // The library lets a request replace a default. Here nobody may ask for more.
        let (default, most) = self.timeouts;
        request.timeout = Some(timeout.map_or(default, |Seconds(time)| time.min(most)));
        request.facts = self.facts.clone();
        request.stream = true;
        request.trace = trace(context);
        // Also while it waits for an approval: nobody could use the answer any more.
        let (call, server) = (context.ct.clone(), self.stop.clone());
        request.cancelled = Some(Box::pin(async move { either(&call, &server).await }));
        let used = match &session {
            Some(name) => self.sessions.named(name.id()).await?,
            None => self.sessions.unnamed().await?,
        };
        let done = self
            .execute(request, &used, session.as_ref(), context)
            .await;
        let ended = self.sessions.end_unnamed(&used).await;
        let result = done?;
        ended.map(|()| result)
    }

    async fn execute(
        &self,
        request: Request,
        used: &InUse,
        session: Option<&SessionName>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        if context.ct.is_cancelled() || self.stop.is_cancelled() {
            return Err(ToolError::cancelled());
        }
        let started = used.session().start(request).await;
        let running = started.map_err(|error| self.sessions.failed(&error))?;
        let progress = context.meta.get_progress_token();
        let progress = progress.map(|token| Progress::new(context.peer.clone(), token));
        let following = Following {
            running,
            stdout: Capture::new(self.shown),
            stderr: Capture::new(self.shown),
            progress,
        };
        let followed = following.until_end().await;
        let (report, stdout, stderr) = followed.map_err(|error| self.sessions.failed(&error))?;
        let images = match report.outcome.lost {
            None => used.open.seen.new_in(used.session()).await,
            Some(_) => Vec::new(),
        };
        let result = Finished {
            report: &report,
            stdout,
            stderr,
            images: &images,
            denied: (self.denials)(&report.attempted),
            session: session.map(|name| (name.id().to_string(), used.is_new)),
            idle: self.idle,
        }
        .result();
        self.outputs.keep(report);
        Ok(result)
    }
}

/// An execution whose output is collected.
struct Following {
    running: ExecutionHandle,
    stdout: Capture,
    stderr: Capture,
    progress: Option<Progress>,
}

impl Following {
    async fn until_end(mut self) -> Result<(Report, Capture, Capture), brig_sandbox::Error> {
        let mut ticks = interval_at(Instant::now() + PROGRESS, PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick(), if self.progress.is_some() => self.report_progress().await,
                event = self.running.next_event() => match event {
                    Some(Event::Stdout(bytes)) => self.stdout.push(&bytes),
                    Some(Event::Stderr(bytes)) => self.stderr.push(&bytes),
                    Some(_) => {}
                    None => break,
                },
            }
        }
        let report = self.running.report().await?;
        Ok((report, self.stdout, self.stderr))
    }

    async fn report_progress(&mut self) {
        let line = self.stdout.last_line().or_else(|| self.stderr.last_line());
        if let Some(progress) = &mut self.progress {
            progress.report(line).await;
        }
    }
}

/// What the client says about the trace of the call.
fn trace(context: &RequestContext<RoleServer>) -> Option<TraceParent> {
    TraceParent::parse(context.meta.get_traceparent()?)
}

/// Until one of them is cancelled.
pub(crate) async fn either(one: &CancellationToken, other: &CancellationToken) {
    tokio::select! {
        () = one.cancelled() => {}
        () = other.cancelled() => {}
    }
}

/// Where a client wants to be told how far a call is.
struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    began: Instant,
}

impl Progress {
    fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        Self {
            peer,
            token,
            began: Instant::now(),
        }
    }

    async fn report(&mut self, line: Option<String>) {
        let seconds = self.began.elapsed().as_secs_f64();
        let mut params = ProgressNotificationParam::new(self.token.clone(), seconds);
        params.message = line;
        // A client that does not read slows nothing down but its own call.
        let _ = tokio::time::timeout(PROGRESS, self.peer.notify_progress(params)).await;
    }
}
