//! Tools: functions of the host that code calls, and what stands between them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::approvals::{ApprovalAnswer, ApprovalRequest};
use brig_sandbox::{
    Control, Error, FunctionTool, Language, Limit, Report, Request, Sandbox, Session,
    SessionConfig, ToolError, ToolName, ToolRegistry, ToolSpec,
};
use serde_json::{Value, json};

use super::fixture::{Done, Fixture, Stop, agent, check, check_eq, run, sh, skip, until};

/// Looks like a frame of the guest protocol, and like the end of an answer.
const FRAME: &str = "\u{1}\0\0\0\0\0\0\0\u{ff}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{\"result\": 1}";

/// For what takes long on a slow machine.
const PATIENT: Duration = Duration::from_secs(500);

/// Whether a call was dropped before its end.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[derive(Clone, Default)]
struct Tools {
    calls: Arc<AtomicUsize>,
    entered: Arc<AtomicBool>,
    dropped: Arc<AtomicBool>,
}

fn spec(name: &str, schema: Value) -> Done<ToolSpec> {
    let mut spec = ToolSpec::new(ToolName::new(name)?, format!("The tool {name}."));
    spec.input_schema = schema;
    Ok(spec)
}

impl Tools {
    fn registry(&self) -> Done<ToolRegistry> {
        let mut registry = ToolRegistry::default();
        let query = json!({
            "type": "object",
            "properties": { "query": { "type": "string" }, "limit": { "type": "integer" } },
            "required": ["query"],
            "additionalProperties": false
        });
        let calls = Arc::clone(&self.calls);
        registry.add(FunctionTool::new(
            spec("fetch_arxiv", query)?,
            move |arguments| {
                calls.fetch_add(1, Ordering::SeqCst);
                async move { Ok(json!({ "found": arguments })) }
            },
        ))?;
        let open = || json!({ "type": "object" });
        let calls = Arc::clone(&self.calls);
        registry.add(FunctionTool::new(spec("hidden", open())?, move |_| {
            calls.fetch_add(1000, Ordering::SeqCst);
            async move { Ok(json!("must not be called")) }
        }))?;
        registry.add(FunctionTool::new(spec("fails", open())?, |_| async move {
            Err(ToolError::Failed("no such paper".into()))
        }))?;
        registry.add(FunctionTool::new(spec("floods", open())?, |_| async move {
            Ok(json!("x".repeat(8 * 1024 * 1024)))
        }))?;
        registry.add(FunctionTool::new(spec("frames", open())?, |_| async move {
            Ok(json!(FRAME))
        }))?;
        let mut lies = spec("lies", open())?;
        lies.output_schema = Some(json!({ "type": "integer" }));
        registry.add(FunctionTool::new(lies, |_| async move { Ok(json!("one")) }))?;
        let mut slow = spec("slow", open())?;
        slow.timeout = Some(Duration::from_millis(50));
        registry.add(FunctionTool::new(slow, |_| std::future::pending()))?;
        let entered = Arc::clone(&self.entered);
        let reached = FunctionTool::new(spec("reached", open())?, move |_| {
            let entered = entered.load(Ordering::SeqCst);
            async move { Ok(json!(entered)) }
        });
        registry.add(reached)?;
        let entered = Arc::clone(&self.entered);
        let dropped = Arc::clone(&self.dropped);
        registry.add(FunctionTool::new(spec("hangs", open())?, move |_| {
            entered.store(true, Ordering::SeqCst);
            let dropped = Dropped(Arc::clone(&dropped));
            async move {
                let _dropped = dropped;
                std::future::pending().await
            }
        }))?;
        Ok(registry)
    }

    /// A session in which these tools are listed, under these defaults and rules.
    async fn session(&self, fixture: &Fixture, policies: &[&str]) -> Done<Session> {
        self.session_with(fixture, fixture.config(), policies).await
    }

    async fn session_with(
        &self,
        fixture: &Fixture,
        config: SessionConfig,
        policies: &[&str],
    ) -> Done<Session> {
        fixture.needs(Control::Tools).await?;
        let config = config.under(set(policies)?)?;
        let sandbox: Sandbox = fixture.builder().tools(self.registry()?).build()?;
        Ok(sandbox.create_session(&agent(), None, config).await?)
    }
}

fn set(policies: &[&str]) -> Done<Arc<PolicySet>> {
    let load = |text: &&str| {
        let defaults = match text.contains("defaults:") {
            true => "",
            false => "defaults: {action: allow}\n",
        };
        let text = format!("{defaults}{text}");
        match Document::load("policy.yaml", &text, Compat::Strict) {
            Ok(loaded) => Ok(loaded.document),
            Err(error) => Err(Stop::Failed(format!("{error:?}"))),
        }
    };
    let documents = policies.iter().map(load).collect::<Done<Vec<_>>>()?;
    Ok(Arc::new(PolicySet::new(documents)))
}

async fn python(session: &Session, source: &str) -> Done<(String, Report)> {
    let started = session.start(Request::code(Language::Python, source)).await;
    let ended = match started {
        Ok(running) => running.wait().await,
        Err(error) => Err(error),
    };
    let report = match ended {
        Ok(report) => report,
        Err(error @ Error::NoInterpreter { .. }) => return skip(error.to_string()),
        Err(error) => return Err(error.into()),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stdout = text(&report.outcome.stdout.bytes);
    let stderr = text(&report.outcome.stderr.bytes);
    check!(report.outcome.success(), "{source}\n{stdout}{stderr}");
    Ok((stdout, report))
}

/// As a program sees a refused call.
const TRY: &str = "
from brig_tools import ToolError, call_tool
def attempt(name, **arguments):
    try:
        print('ok', call_tool(name, **arguments))
    except ToolError as error:
        print(error.code)
";

pub(crate) async fn a_tool_is_called_by_its_name(fixture: Fixture) -> Done {
    let tools = Tools::default();
    let session = tools
        .session(&fixture, &["tool_allowlist: [fetch_arxiv]\n"])
        .await?;
    let source = "
print(fetch_arxiv('cs.CL'))
import asyncio, brig_tools
from brig_tools import aio, call_tool, call_tool_async, fetch_arxiv as fetch
print(fetch(query='a', limit=2))
print(call_tool('fetch_arxiv', query='b'))
print(asyncio.run(aio.fetch_arxiv('c')))
print(asyncio.run(call_tool_async('fetch_arxiv', query='d')))
print(fetch.__doc__)
";
    let (stdout, report) = python(&session, source).await?;
    let shell = sh("python3 -m brig_tools fetch_arxiv '{\"query\": \"e\"}'");
    let shell = run(&session, shell).await?.outcome;
    check_eq!(
        String::from_utf8_lossy(&shell.stdout.bytes),
        "{\"found\": {\"query\": \"e\"}}\n"
    );
    check_eq!(
        stdout,
        "{'found': {'query': 'cs.CL'}}\n{'found': {'limit': 2, 'query': 'a'}}\n\
         {'found': {'query': 'b'}}\n{'found': {'query': 'c'}}\n{'found': {'query': 'd'}}\n\
         The tool fetch_arxiv.\n"
    );
    check_eq!(tools.calls.load(Ordering::SeqCst), 6);
    let calls = &report.attempted.tools;
    check_eq!(calls.len(), 5);
    check!(
        calls.iter().all(|call| call.allowed
            && call.tool == "fetch_arxiv"
            && call.success == Some(true)
            && call.milliseconds.is_some()
            && call.arguments_digest.is_some()),
        "{calls:?}"
    );
    check_eq!(report.to_json()["tools"][0]["tool"], "fetch_arxiv");
    Ok(())
}

pub(crate) async fn every_language_can_call_one(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let tools = Tools::default();
    let session = tools
        .session(&fixture, &["tool_allowlist: [fetch_arxiv]\n"])
        .await?;
    let script = r#"
brig-tool fetch_arxiv '{"query": "x"}'
brig-tool hidden; echo $?
brig-tool fetch_arxiv '{"query": '; echo $?
brig-tool fetch_arxiv; echo $?
brig-tool 'a b'; echo $?
brig-tool --list
"#;
    let outcome = run(&session, sh(script)).await?.outcome;
    let stdout = String::from_utf8_lossy(&outcome.stdout.bytes);
    let stderr = String::from_utf8_lossy(&outcome.stderr.bytes);
    let expected = "{\"found\":{\"query\":\"x\"}}\n126\n1\n1\n2\n[{\"description\"";
    check!(stdout.starts_with(expected), "{stdout}{stderr}");
    for code in ["[tool.not-allowed]", "[tool.arguments]", "usage: "] {
        check!(stderr.contains(code), "{stderr}");
    }
    check_eq!(tools.calls.load(Ordering::SeqCst), 1);
    Ok(())
}

pub(crate) async fn only_listed_tools_exist(fixture: Fixture) -> Done {
    let tools = Tools::default();
    let session = tools
        .session(&fixture, &["tool_allowlist: [fetch_arxiv]\n"])
        .await?;
    // The `е` of the second name is Cyrillic.
    let source = format!(
        "{TRY}
try:
    hidden()
except NameError:
    print('not there')
attempt('hidden')
attempt('f\u{435}tch_arxiv', query='x')
attempt('no_such_tool')
attempt('../fetch_arxiv')
import os, urllib.request
listed = urllib.request.urlopen(os.environ['TOOL_PROXY_URL'] + '/tools').read().decode()
print('fetch_arxiv' in listed, 'hidden' in listed)
attempt('fetch_arxiv', query='x')
"
    );
    let (stdout, report) = python(&session, &source).await?;
    let refused = "tool.not-allowed\n".repeat(4);
    check_eq!(
        stdout,
        format!("not there\n{refused}True False\nok {{'found': {{'query': 'x'}}}}\n")
    );
    check_eq!(tools.calls.load(Ordering::SeqCst), 1);
    let refused = |call: &&brig_audit::Tool| !call.allowed && call.code == "tool.not-allowed";
    check_eq!(report.attempted.tools.iter().filter(refused).count(), 4);
    Ok(())
}

pub(crate) async fn every_policy_must_list_a_tool(fixture: Fixture) -> Done {
    let both = [
        "tool_allowlist: [fetch_arxiv, fails]\n",
        "tool_allowlist: [fetch_arxiv]\n",
    ];
    let session = Tools::default().session(&fixture, &both).await?;
    let source = format!("{TRY}\nattempt('fails')\nattempt('fetch_arxiv', query='x')");
    let (stdout, _) = python(&session, &source).await?;
    check_eq!(stdout, "tool.not-allowed\nok {'found': {'query': 'x'}}\n");
    // A policy that lists none allows none, and then nothing is offered.
    for policies in [
        &["tool_allowlist: [fetch_arxiv]\n", "name: silent\n"][..],
        &[],
    ] {
        let session = Tools::default().session(&fixture, policies).await?;
        let source =
            "import os\nprint('TOOL_PROXY_URL' in os.environ, 'fetch_arxiv' in dir(__builtins__))";
        let (stdout, _) = python(&session, source).await?;
        check_eq!(stdout, "False False\n");
    }
    Ok(())
}

pub(crate) async fn a_name_that_nobody_registered_is_refused(fixture: Fixture) -> Done {
    let policies = ["tool_allowlist: [fetch_arxvi]\n"];
    match Tools::default().session(&fixture, &policies).await {
        Ok(_) => Err(Stop::Failed("a tool that does not exist".into())),
        Err(Stop::Failed(problem)) => {
            check!(
                problem.contains("`fetch_arxvi`") && problem.contains("`fetch_arxiv`"),
                "{problem}"
            );
            Ok(())
        }
        Err(skipped) => Err(skipped),
    }
}

pub(crate) async fn rules_decide_by_name_and_arguments(fixture: Fixture) -> Done {
    let policy = "
name: rules
tool_allowlist: [fetch_arxiv]
rules:
  - name: no-secrets
    condition: {field: tool_args.query, operator: contains, value: secret}
    action: deny
    priority: 10
    message: secrets are not searched for
";
    let tools = Tools::default();
    let session = tools.session(&fixture, &[policy]).await?;
    let source = "
try:
    fetch_arxiv('my secret')
except Exception as error:
    print(error.code, 'secrets are not searched for' in str(error), 'do not retry' in str(error))
print(fetch_arxiv('cs.CL'))
";
    let (stdout, report) = python(&session, source).await?;
    check_eq!(
        stdout,
        "tool.denied True True\n{'found': {'query': 'cs.CL'}}\n"
    );
    check_eq!(tools.calls.load(Ordering::SeqCst), 1);
    let denied = report.attempted.tools.iter().find(|call| !call.allowed);
    let rule = denied.and_then(|call| call.rule.as_deref());
    check_eq!(rule, Some("no-secrets"));
    Ok(())
}

pub(crate) async fn arguments_and_results_are_checked(fixture: Fixture) -> Done {
    let policy = "defaults: {action: allow, max_tool_calls: 100}\ntool_allowlist: [fetch_arxiv, fails, floods, lies, frames, slow]\n";
    let tools = Tools::default();
    let session = tools.session(&fixture, &[policy]).await?;
    let source = format!(
        "{TRY}
attempt('fetch_arxiv', query=3)
attempt('fetch_arxiv')
attempt('fetch_arxiv', query='x', more=1)
attempt('fetch_arxiv', query='x' * 64 * 1024 * 1024)
attempt('fails')
attempt('floods')
attempt('lies')
attempt('slow')
assert call_tool('frames') == {frame}
attempt('fetch_arxiv', query='x')
",
        frame = json!(FRAME)
    );
    let (stdout, report) = python(&session, &source).await?;
    check_eq!(
        stdout,
        "tool.arguments\n".repeat(4)
            + "tool.failed\ntool.result-too-large\ntool.result\ntool.timeout\n\
               ok {'found': {'query': 'x'}}\n"
    );
    check_eq!(tools.calls.load(Ordering::SeqCst), 1);
    let failed = report
        .attempted
        .tools
        .iter()
        .filter(|call| call.success == Some(false));
    check_eq!(failed.count(), 4);
    Ok(())
}

pub(crate) async fn calls_are_counted(fixture: Fixture) -> Done {
    let policy = "defaults: {action: allow, max_tool_calls: 3}\ntool_allowlist: [fetch_arxiv]\n";
    let tools = Tools::default();
    let session = tools.session(&fixture, &[policy]).await?;
    let source = format!("{TRY}\nfor n in range(5):\n    attempt('fetch_arxiv', query='x')");
    for round in 1..=2 {
        let (stdout, _) = python(&session, &source).await?;
        let found = "ok {'found': {'query': 'x'}}\n".repeat(3);
        check_eq!(stdout, found + &"tool.too-many\n".repeat(2));
        check_eq!(tools.calls.load(Ordering::SeqCst), 3 * round);
    }
    Ok(())
}

pub(crate) async fn a_call_ends_with_its_execution(fixture: Fixture) -> Done {
    let policy =
        "defaults: {action: allow, max_tool_calls: 1000}\ntool_allowlist: [hangs, reached]\n";
    let tools = Tools::default();
    let mut config = fixture.config();
    config.limits.timeout = Limit::default_of(Duration::from_secs(60));
    let session = tools.session_with(&fixture, config, &[policy]).await?;
    let source = "
import os, threading, time
threading.Thread(target=call_tool, args=('hangs',), daemon=True).start()
while not reached():
    time.sleep(0.3)
os._exit(0)
";
    let (_, report) = python(&session, source).await?;
    let calls = &report.attempted.tools;
    let ended = calls.iter().find(|call| call.tool == "hangs");
    let ended = ended.map(|call| (call.code.as_str(), call.success));
    check!(ended == Some(("tool.cancelled", None)), "{calls:?}");
    until("the call is dropped", || {
        tools.dropped.load(Ordering::SeqCst)
    })
    .await
}

pub(crate) async fn many_threads_call_at_once(fixture: Fixture) -> Done {
    let policy = "defaults: {action: allow, max_tool_calls: 1000}\ntool_allowlist: [fetch_arxiv]\n";
    let tools = Tools::default();
    let session = tools.session(&fixture, &[policy]).await?;
    let source = "
import concurrent.futures
def one(n):
    return [fetch_arxiv(f'{n}.{i}')['found']['query'] for i in range(4)] == [f'{n}.{i}' for i in range(4)]
with concurrent.futures.ThreadPoolExecutor(50) as pool:
    print(all(pool.map(one, range(50))))
";
    let (stdout, report) = python(&session, source).await?;
    check_eq!(stdout, "True\n");
    check_eq!(tools.calls.load(Ordering::SeqCst), 200);
    let listed = report.attempted.tools.len() as u64;
    check_eq!(listed + report.attempted.omitted.tools, 200);
    Ok(())
}

pub(crate) async fn malformed_requests_end_only_their_connection(fixture: Fixture) -> Done {
    let policy = "tool_allowlist: [fetch_arxiv]\n";
    let tools = Tools::default();
    let session = tools.session(&fixture, &[policy]).await?;
    let source = r#"
import os, socket
host, _, token = os.environ['TOOL_PROXY_URL'].removeprefix('http://').partition('/')
name, port = host.split(':')
def send(data, ends=True):
    stream = socket.create_connection((name, int(port)))
    stream.settimeout(20)
    try:
        stream.sendall(data)
        if ends:
            stream.shutdown(socket.SHUT_WR)
        return stream.recv(12)
    except OSError:
        return b'closed'
def post(path, body, more=''):
    head = f'POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n'
    return send(head.encode() + body, ends=False)
own = f'/{token}/call_tool'
call = b'{"tool": "fetch_arxiv", "args": {"query": "x"}}'
assert post(own, call) == b'HTTP/1.1 200'
for body in [b'', b'{', b'[]', b'null', b'{"tool": 1}', b'{"tool": "fetch_arxiv", "args": []}', b'\xff' * 100, b'[' * 100000]:
    assert post(own, body) == b'HTTP/1.1 400', body[:20]
assert post('/0123456789abcdef/call_tool', call) == b'HTTP/1.1 404'
assert post('/call_tool', call) == b'HTTP/1.1 404'
assert post(own + '/../x', call) == b'HTTP/1.1 404'
for data in [b'\0' * 1000, b'GET', b'\x01\0\0\0\0\0\0\0\xff' * 1000, os.urandom(100000), b'A' * 10_000_000]:
    assert not send(data).startswith(b'HTTP/1.1 2')
assert post(own, b'x' * 64 * 1024 * 1024) in (b'HTTP/1.1 413', b'closed')
assert post(own, call, 'x: y\r\n' * 1000) != b'HTTP/1.1 200'
print(fetch_arxiv('x'))
"#;
    let (stdout, _) = python(&session, source).await?;
    check_eq!(stdout, "{'found': {'query': 'x'}}\n");
    check_eq!(tools.calls.load(Ordering::SeqCst), 2);
    Ok(())
}

/// Calls that were changed in a few places, always the same ones: whatever they lead to, the next call is answered.
pub(crate) async fn mutated_requests_end_only_their_connection(fixture: Fixture) -> Done {
    let policy = "defaults: {action: allow, max_tool_calls: 1000}\ntool_allowlist: [fetch_arxiv]\n";
    let session = Tools::default().session(&fixture, &[policy]).await?;
    let source = r#"
import os, random, socket
host, _, token = os.environ['TOOL_PROXY_URL'].removeprefix('http://').partition('/')
name, port = host.split(':')
def send(data):
    with socket.create_connection((name, int(port))) as stream:
        stream.settimeout(20)
        try:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            while stream.recv(65536):
                pass
        except TimeoutError:
            raise
        except OSError:
            pass
body = b'{"tool": "fetch_arxiv", "args": {"query": "x\\u00e9", "n": [1, -2.5e3, true, null]}}'
whole = f'POST /{token}/call_tool HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n'.encode() + body
odd = [b'', b'\0', b'\xff', b'\r\n', b'"', b'{', b'[' * 300, b'9' * 40, b'\\ud800', b'Transfer-Encoding: chunked\r\n', b' ' * 100]
choose = random.Random(7)
for _ in range(300):
    data = bytearray(whole)
    for _ in range(choose.randint(1, 4)):
        start = choose.randrange(len(data))
        data[start:start + choose.randint(0, 8)] = choose.choice(odd + [data[start:start + 50]])
    send(bytes(data))
print(fetch_arxiv('x'))
"#;
    let (stdout, _) = python(&session, source).await?;
    check_eq!(stdout, "{'found': {'query': 'x'}}\n");
    Ok(())
}

pub(crate) async fn a_call_is_recorded_for_its_own_execution(fixture: Fixture) -> Done {
    let policy = "tool_allowlist: [fetch_arxiv]\n";
    let session = Tools::default().session(&fixture, &[policy]).await?;
    let twice = "fetch_arxiv('a'); fetch_arxiv('b'); import time; time.sleep(0.3)";
    let once = "import time; time.sleep(0.1); fetch_arxiv('c')";
    let (one, two) = tokio::join!(python(&session, twice), python(&session, once));
    check_eq!(one?.1.attempted.tools.len(), 2);
    check_eq!(two?.1.attempted.tools.len(), 1);
    Ok(())
}

/// Requires an approval of what mentions mail, in code and in calls.
const ASKS: &str = "
name: asks
tool_allowlist: [fetch_arxiv]
record_tool_arguments: true
rules:
  - name: ask
    condition: {field: tool_args.query, operator: contains, value: mail}
    action: require_approval
    message: mail is checked by a person
  - name: ask-code
    condition: {field: code, operator: contains, value: '# careful'}
    action: require_approval
";

/// Answers by what the request shows, and counts.
async fn asking(fixture: &Fixture, asked: &Arc<AtomicUsize>) -> Done<(Tools, Session)> {
    fixture.needs(Control::Tools).await?;
    let tools = Tools::default();
    let counted = Arc::clone(asked);
    let answer = move |request: ApprovalRequest| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match request.subject.text.contains("forbidden") {
                true => ApprovalAnswer::deny("alice").because("not this one"),
                false => ApprovalAnswer::approve("alice"),
            }
        }
    };
    let builder = fixture.builder().tools(tools.registry()?);
    let sandbox = builder.approve_with(answer).build()?;
    let config = fixture.config().under(set(&[ASKS])?)?;
    let session = sandbox.create_session(&agent(), None, config).await?;
    Ok((tools, session))
}

pub(crate) async fn a_call_waits_for_its_approval(fixture: Fixture) -> Done {
    let asked = Arc::new(AtomicUsize::new(0));
    let (tools, session) = asking(&fixture, &asked).await?;
    let source = format!(
        "{TRY}\nattempt('fetch_arxiv', query='mail')\nattempt('fetch_arxiv', query='forbidden mail')\n\
         attempt('fetch_arxiv', query='other')\nattempt('fetch_arxiv', query='mail', more=1)"
    );
    let (stdout, report) = python(&session, &source).await?;
    check_eq!(
        stdout,
        "ok {'found': {'query': 'mail'}}\ntool.approval\nok {'found': {'query': 'other'}}\ntool.arguments\n"
    );
    // Arguments that are invalid are nobody's trouble.
    check_eq!(asked.load(Ordering::SeqCst), 2);
    check_eq!(tools.calls.load(Ordering::SeqCst), 2);
    let calls = &report.attempted.tools;
    let outcomes: Vec<_> = (calls.iter())
        .map(|call| {
            (call.approval.as_ref()).map(|given| (given.outcome.name(), given.by.as_deref()))
        })
        .collect();
    check_eq!(
        outcomes,
        [
            Some(("approved", Some("alice"))),
            Some(("denied", Some("alice"))),
            None,
            None
        ]
    );
    check_eq!(calls[1].rule.as_deref(), Some("ask"));
    check_eq!(calls[0].arguments.as_deref(), Some(r#"{"query":"mail"}"#));
    Ok(())
}

pub(crate) async fn code_waits_for_its_approval(fixture: Fixture) -> Done {
    let asked = Arc::new(AtomicUsize::new(0));
    let (_, session) = asking(&fixture, &asked).await?;
    let (stdout, report) = python(&session, "print(1) # careful").await?;
    check_eq!(stdout, "1\n");
    check_eq!(report.decision.code, "policy.approved");
    let by = report
        .approval
        .as_ref()
        .and_then(|given| given.by.as_deref());
    check_eq!(by, Some("alice"));
    let request = Request::code(Language::Python, "print('forbidden') # careful");
    match session.start(request).await {
        Err(Error::Denied(denial)) => {
            check_eq!(denial.code(), "policy.approval");
            check!(
                denial.reason().contains("not this one"),
                "{}",
                denial.reason()
            );
        }
        other => return Err(Stop::Failed(format!("{other:?}"))),
    }
    check_eq!(asked.load(Ordering::SeqCst), 2);
    // Nobody can be asked.
    let config = fixture.config().under(set(&[ASKS])?)?;
    let sandbox = fixture
        .builder()
        .tools(Tools::default().registry()?)
        .build()?;
    let session = sandbox.create_session(&agent(), None, config).await?;
    let request = Request::code(Language::Python, "print(1) # careful");
    match session.start(request).await {
        Err(Error::Denied(denial)) => {
            check!(
                denial.reason().contains("there is no approver"),
                "{}",
                denial.reason()
            );
        }
        other => return Err(Stop::Failed(format!("{other:?}"))),
    }
    Ok(())
}

pub(crate) async fn a_tool_may_run_code_itself(fixture: Fixture) -> Done {
    fixture.needs(Control::Tools).await?;
    let policy =
        set(&["defaults: {action: allow, max_tool_calls: 100}\ntool_allowlist: [nested]\n"])?;
    let inner = fixture.builder().build()?;
    let config = fixture.config();
    let mut registry = ToolRegistry::default();
    registry.add(FunctionTool::new(
        spec("nested", json!({ "type": "object" }))?,
        move |_| {
            let (inner, config) = (inner.clone(), config.clone());
            async move {
                let request = Request::code(Language::Python, "print(6 * 7)");
                match inner.run_once(&agent(), config, request).await {
                    Ok(report) => Ok(json!(String::from_utf8_lossy(&report.outcome.stdout.bytes))),
                    Err(error) => Err(ToolError::Failed(error.to_string())),
                }
            }
        },
    ))?;
    let sandbox = fixture.builder().tools(registry).build()?;
    let session = sandbox
        .create_session(&agent(), None, fixture.config().under(policy)?)
        .await?;
    let source = "
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(set(pool.map(lambda _: nested(), range(4))))
";
    let (stdout, _) = python(&session, source).await?;
    check_eq!(stdout, "{'42\\n'}\n");
    Ok(())
}

/// Calls within calls: each execution has calls of its own, so none of them waits for the one that waits for it.
pub(crate) async fn a_tool_may_run_code_in_its_own_session(fixture: Fixture) -> Done {
    fixture.needs(Control::Tools).await?;
    let policy =
        set(&["defaults: {action: allow, max_tool_calls: 100}\ntool_allowlist: [nested]\n"])?;
    let own = Arc::new(OnceLock::<Session>::new());
    let of_tool = Arc::clone(&own);
    let mut registry = ToolRegistry::default();
    let mut nested = spec("nested", json!({ "type": "object" }))?;
    // An emulated machine starts some twenty interpreters in minutes.
    nested.timeout = Some(PATIENT);
    registry.add(FunctionTool::new(nested, move |arguments| {
        let own = Arc::clone(&of_tool);
        async move {
            let depth = arguments["depth"].as_u64().unwrap_or(0);
            let session = own.get().filter(|_| depth > 0);
            let Some(session) = session else {
                return Ok(json!("bottom"));
            };
            let source = format!("print(nested(depth={}), end='')", depth - 1);
            match session.execute_code(Language::Python, source).await {
                Ok(report) => Ok(json!(String::from_utf8_lossy(&report.outcome.stdout.bytes))),
                Err(error) => Err(ToolError::Failed(error.to_string())),
            }
        }
    }))?;
    let sandbox = fixture.builder().tools(registry).build()?;
    let mut config = fixture.config();
    config.limits.timeout = Limit::default_of(PATIENT);
    let session = sandbox
        .create_session(&agent(), None, config.under(policy)?)
        .await?;
    check!(own.set(session.clone()).is_ok(), "set once");
    let (stdout, _) = python(&session, "print(nested(depth=3))").await?;
    check_eq!(stdout, "bottom\n");
    // More than one execution may make at once.
    let source = "
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor(17) as pool:
    print(set(pool.map(lambda _: nested(depth=1), range(17))))
";
    let (stdout, _) = python(&session, source).await?;
    check_eq!(stdout, "{'bottom'}\n");
    Ok(())
}
