//! Approvals: where the operator is asked, and `brig approvals`, with which they answer.

mod terminal;
mod text;

use std::sync::Arc;

use async_trait::async_trait;
use brig_reason::ReasonCode;
use brig_sandbox::approvals::{
    ApprovalAnswer, ApprovalQueue, ApprovalRequest, Approver, QueueError,
};
use serde_json::{Value, json};

use crate::args::{ApprovalPlace, ApprovalsAnswerArgs, ApprovalsCommand};
use crate::drive::Attachment;
use crate::failure::{self, Failure};
use crate::{escape, json, state, table, write_out};

pub(crate) use terminal::SCREEN;

/// Who is asked during a run.
pub(crate) type Asked = Option<Arc<dyn Approver>>;

/// The terminal is not used if the program reads from it: two readers would take each other's keys.
pub(crate) fn approver(
    place: Option<ApprovalPlace>,
    attachment: Attachment,
) -> Result<Asked, Failure> {
    let shared = attachment.reads_terminal();
    match place {
        Some(ApprovalPlace::None) => Ok(None),
        Some(ApprovalPlace::Queue) => queue().map(Some),
        Some(ApprovalPlace::Terminal) if shared => Err(Failure::usage(
            "--approvals terminal cannot be used if the program reads from the terminal",
        )
        .with_hint("answer with `brig approvals` from another terminal: --approvals queue")),
        Some(ApprovalPlace::Terminal) if !terminal::is_usable() => Err(Failure::new(
            ReasonCode::InputTerminal,
            "--approvals terminal needs a terminal, with Brig in its foreground",
        )
        .with_hint("use --approvals queue")),
        Some(ApprovalPlace::Terminal) => Ok(Some(Arc::new(terminal::Terminal::new(user())))),
        None if !shared && terminal::is_usable() => {
            Ok(Some(Arc::new(terminal::Terminal::new(user()))))
        }
        None => queue().map(Some),
    }
}

/// Requests wait for `brig approvals`.
pub(crate) fn queue() -> Result<Arc<dyn Approver>, Failure> {
    state::writable()?;
    Ok(Arc::new(Queued))
}

/// Opened when something is asked: most runs never do.
#[derive(Debug)]
struct Queued;

#[async_trait]
impl Approver for Queued {
    async fn ask(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let queue = match open() {
            Ok(queue) => queue,
            Err(failure) => return ApprovalAnswer::deny("brig").because(failure.to_string()),
        };
        let (what, id) = (text::what(request), &request.id);
        let seconds = request.timeout.as_secs();
        failure::warning(&format!("{what} waits up to {seconds} s for an approval"));
        failure::hint(&format!(
            "`brig approvals show {id}` shows it; `brig approvals approve {id}` or `deny {id}` answers"
        ));
        queue.ask(request).await
    }
}

/// One queue for the whole process, so that its bound holds.
fn open() -> Result<&'static ApprovalQueue, Failure> {
    static QUEUE: std::sync::OnceLock<ApprovalQueue> = std::sync::OnceLock::new();
    if let Some(queue) = QUEUE.get() {
        return Ok(queue);
    }
    let state = state::directory()?;
    state::of_this_user(&state)?;
    let queue = ApprovalQueue::open(&state).map_err(failed)?;
    Ok(QUEUE.get_or_init(|| queue))
}

pub(crate) fn run(command: &ApprovalsCommand) -> u8 {
    let (done, as_json) = match command {
        ApprovalsCommand::Ls(args) => (list(args.json), args.json),
        ApprovalsCommand::Show(args) => (show(&args.id, args.json), args.json),
        ApprovalsCommand::Approve(args) => (answer(args, true), args.json),
        ApprovalsCommand::Deny(args) => (answer(args, false), args.json),
    };
    done.unwrap_or_else(|failure| {
        failure.report(as_json);
        failure.exit()
    })
}

fn list(as_json: bool) -> Result<u8, Failure> {
    let all = open()?.list().map_err(failed)?;
    if as_json {
        let all: Vec<Value> = all.iter().map(object).collect();
        json::print(&json!({ "approvals": all, "error": null }));
        return Ok(0);
    }
    let rows: Vec<[String; 6]> = (all.iter())
        .map(|request| {
            [
                request.id.clone(),
                text::left(request),
                request.agent.to_string(),
                request.session.to_string(),
                request.rule.clone().unwrap_or_default(),
                text::summary(&request.subject),
            ]
        })
        .collect();
    let heading = ["ID", "LEFT", "AGENT", "SESSION", "RULE", "WHAT"];
    Ok(write_out(table::text(heading, &rows).as_bytes()))
}

fn show(id: &str, as_json: bool) -> Result<u8, Failure> {
    let request = open()?.get(id).map_err(failed)?;
    if as_json {
        let mut object = object(&request);
        object["error"] = Value::Null;
        json::print(&object);
        return Ok(0);
    }
    let shown = format!("id       {id}\n{}", text::whole(&request));
    Ok(write_out(shown.as_bytes()))
}

fn answer(args: &ApprovalsAnswerArgs, approved: bool) -> Result<u8, Failure> {
    let queue = open()?;
    let request = queue.get(&args.id).map_err(failed)?;
    let answer = ApprovalAnswer {
        approved,
        by: user(),
        reason: args.reason.clone(),
    };
    queue.answer(&request, answer).map_err(failed)?;
    let word = if approved { "approved" } else { "denied" };
    if args.json {
        json::print(&json!({ "id": args.id, "approved": approved, "error": null }));
        return Ok(0);
    }
    let line = format!("{word}: {}", text::what(&request));
    Ok(write_out(format!("{}\n", escape::line(&line)).as_bytes()))
}

fn object(request: &ApprovalRequest) -> Value {
    let mut object = json!(request);
    object["timeout_seconds"] = json!(request.timeout.as_secs());
    object["seconds_left"] = json!(text::seconds_left(request));
    if let Some(fields) = object.as_object_mut() {
        fields.remove("timeout");
    }
    object
}

fn failed(error: QueueError) -> Failure {
    let code = match &error {
        QueueError::Unknown(_) => ReasonCode::ApprovalUnknown,
        QueueError::Answered(_) => ReasonCode::ApprovalAnswered,
        _ => ReasonCode::StateUnwritable,
    };
    let hint = match code {
        ReasonCode::ApprovalUnknown => "`brig approvals ls` lists what waits for an answer",
        ReasonCode::ApprovalAnswered => "`brig audit show` shows the outcome",
        _ => "check the owner and the permissions of the directory",
    };
    Failure::new(code, error.to_string()).with_hint(hint)
}

/// Who runs this process, as it is recorded. Not from the environment, which anybody can set.
fn user() -> String {
    let uid = rustix::process::getuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid {uid}"))
}
