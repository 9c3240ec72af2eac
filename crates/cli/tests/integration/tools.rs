//! Tools of the host: `brig tools`, and tools of runs.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Brig, digits, is_running};

const ALLOWS: &str =
    "version: '1.0'\nname: p\ntool_allowlist: [shout]\ndefaults: {action: allow}\n";
const SHOUT: &str = "shout=tr a-z A-Z";

/// The MCP server of the tests of `brig-tool-sources`.
fn server(mode: &str) -> String {
    let file = "../tool-sources/tests/integration/servers/server.py";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    format!("test=python3 -S '{}' {mode}", path.display())
}

#[test]
fn a_command_is_called_by_hand() {
    let brig = Brig::new();
    let call = |more: &[&str]| {
        let words = ["tools", "call", "shout", "{\"a\": 1}", "--tool", SHOUT];
        brig.run(words.iter().chain(more))
    };
    call(&[])
        .exits(0)
        .prints("{\n  \"A\": 1\n}\n")
        .stays_silent();
    let object = call(&["--json"]).exits(0).json();
    assert_eq!(
        (&object["tool"], &object["result"]),
        (&json!("shout"), &json!({"A": 1}))
    );
    brig.write(
        "policy.yaml",
        "version: '1.0'\nname: p\ndefaults: {action: allow}\n",
    );
    let denied = call(&["--json", "--policy", "policy.yaml"]).exits(126);
    assert_eq!(denied.json()["error"]["code"], "tool.not-allowed");
    brig.write("policy.yaml", ALLOWS);
    call(&["--policy", "policy.yaml"]).exits(0);
    // As the gate would answer to code: rules and their arguments, then the schema.
    brig.write(
        "policy.yaml",
        &format!(
            "{ALLOWS}rules:\n  - {{name: no-ones, condition: {{field: tool_args.a, operator: eq, value: 1}}, action: deny}}\n"
        ),
    );
    let denied = call(&["--json", "--policy", "policy.yaml"]).exits(126);
    assert_eq!(denied.json()["error"]["code"], "tool.denied");
    let words = ["tools", "call", "shout", "{\"a\": 2}", "--tool", SHOUT];
    let other = words.into_iter().chain(["--policy", "policy.yaml"]);
    brig.run(other).exits(0).prints("{\n  \"A\": 2\n}\n");
    fs::create_dir_all(brig.home().join("config/brig")).unwrap();
    let configured = "tools: {loud: {command: [tr, a-z, A-Z], input_schema: {type: object, required: [text]}}}\n";
    brig.write("config/brig/config.yaml", configured);
    let wrong = brig
        .run(["tools", "call", "loud", "{}", "--json"])
        .exits(125);
    assert_eq!(wrong.json()["error"]["code"], "tool.arguments");
    brig.run(["tools", "call", "loud", "{\"text\": 1}"])
        .exits(0);
    brig.run(["tools", "call", "shuot", "--tool", SHOUT])
        .exits(125)
        .complains("did you mean `shout`?");
    brig.run(["tools", "call", "shout", "[]", "--tool", SHOUT])
        .exits(125)
        .complains("not a JSON object");
    brig.run([
        "tools",
        "call",
        "x",
        "--tool",
        "x=sh -c 'echo no; echo why >&2; exit 4'",
    ])
    .exits(125)
    .complains("exit code 4: no")
    .complains("why");
    brig.run([
        "tools",
        "call",
        "x",
        "--timeout",
        "1s",
        "--tool",
        "x=sleep 600",
    ])
    .exits(125)
    .complains("did not answer within 1 s");
}

/// Of a command and of a server, called by code.
#[test]
fn a_call_ends_after_the_time_of_the_flag() {
    let brig = Brig::new();
    let policy =
        "version: '1.0'\nname: p\ntool_allowlist: [slow, echo]\ndefaults: {action: allow}\n";
    brig.write("policy.yaml", policy);
    let (hangs, code) = (
        server("hangs-in-call"),
        "import brig_tools\nfor name in ('slow', 'echo'):\n    try:\n        brig_tools.call_tool(name)\n    \
         except brig_tools.ToolError as error:\n        print(error.code, 'within 1 s' in str(error))",
    );
    let tools = [
        "run",
        "--policy",
        "policy.yaml",
        "--tool",
        "slow=sleep 600",
        "--mcp-server",
        &hangs,
        "--mcp-tool",
        "test.echo",
        "--tool-timeout",
        "1s",
        "-c",
        code,
    ];
    brig.run(tools)
        .exits(0)
        .prints("tool.timeout True\ntool.timeout True\n");
}

#[test]
fn tools_of_flags_and_of_the_configuration_are_listed() {
    let brig = Brig::new();
    fs::create_dir_all(brig.home().join("config/brig")).unwrap();
    brig.write(
        "config/brig/config.yaml",
        "tools:\n  shout:\n    command: [tr, a-z, A-Z]\n    description: Loud\n    timeout: 5s\n    input_schema: {type: object, required: [text]}\n",
    );
    brig.write(
        "policy.yaml",
        "version: '1.0'\nname: p\ntool_allowlist: [shout, gone]\ndefaults: {action: allow}\n",
    );
    let words = [
        "tools",
        "ls",
        "--policy",
        "policy.yaml",
        "--tool",
        "other=true",
        "--mcp-server",
    ];
    let (good, bad) = (server("good"), server("dies"));
    let listed = brig.run(words.into_iter().chain([
        good.as_str(),
        "--mcp-tool",
        "test.echo=repeat",
        "--json",
    ]));
    let listed = listed.exits(0).json();
    let names: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| (&tool["name"], &tool["allowed"]))
        .collect();
    let expected = [
        (json!("other"), json!(false)),
        (json!("repeat"), json!(false)),
        (json!("shout"), json!(true)),
    ];
    assert_eq!(
        names,
        expected
            .iter()
            .map(|(name, allowed)| (name, allowed))
            .collect::<Vec<_>>()
    );
    assert_eq!(listed["missing"], json!(["gone"]));
    let shout = &listed["tools"][2];
    assert_eq!(
        shout["input_schema"],
        json!({"type": "object", "required": ["text"]})
    );
    assert_eq!(
        (&shout["timeout_ms"], &shout["description"]),
        (&json!(5000), &json!("Loud"))
    );
    // All problems are seen at once.
    let words = [
        "tools",
        "check",
        "--json",
        "--policy",
        "policy.yaml",
        "--mcp-server",
        &bad,
    ];
    let checked = brig.run(words).exits(125).json();
    assert_eq!(
        (&checked["valid"], &checked["missing"]),
        (&json!(false), &json!(["gone"]))
    );
    assert_eq!(checked["sources"][0]["error"]["code"], "tool.unavailable");
    assert_eq!(
        checked["sources"][1],
        json!({"name": "shout", "kind": "command", "tools": 1, "error": null})
    );
    brig.run(["tools", "check"])
        .exits(0)
        .prints("shout: 1 tools\n");
}

#[test]
fn what_is_wrong_with_a_tool_is_said_before_anything_runs() {
    let brig = Brig::new();
    for (flags, part) in [
        (
            ["--tool", "x=./missing.sh"],
            "there is no program `./missing.sh`",
        ),
        (["--tool", "x=a | b"], "needs a shell"),
        (["--tool", "f\u{435}tch=true"], "not a valid tool name"),
        (["--mcp-tool", "a.b"], "no --mcp-server does"),
        (["--mcp-server", "x=true"], "MCP server `x`"),
    ] {
        let words = ["run"]
            .into_iter()
            .chain(flags)
            .chain(["-c", "print('ran')"]);
        brig.run(words).exits(125).prints("").complains(part);
    }
    let twice = ["run", "--tool", "x=true", "--tool", "x=false", "-c", "1"];
    brig.run(twice)
        .exits(125)
        .complains("two tools are named `x`");
    // Without a sandbox nothing could call them.
    brig.write("agent.yaml", "name: a\ncommand: ['true']\n");
    brig.run([
        "agent",
        "run",
        "--sandbox=false",
        "--tool",
        "x=true",
        "agent.yaml",
    ])
    .exits(125)
    .complains("--tool needs a sandbox");
}

#[test]
fn a_program_that_the_code_could_change_is_refused() {
    let brig = Brig::new();
    fs::create_dir(brig.home().join("project")).unwrap();
    brig.write("project/tool.py", "print(1)\n");
    brig.write("tool.py", "print(1)\n");
    let run = |directory: &str, tool: &str| {
        let mut command = brig.command([
            "run",
            "--json",
            "--workspace",
            ".",
            "--tool",
            tool,
            "-c",
            "1",
        ]);
        command
            .current_dir(brig.home().join(directory))
            .output()
            .unwrap()
    };
    let code = |output: std::process::Output| {
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        object["error"]["code"].clone()
    };
    for tool in [
        "x=python3 tool.py",
        "x=python3 ./tool.py",
        "x=env --x=tool.py",
    ] {
        assert_eq!(code(run("project", tool)), "tool.writable", "{tool}");
    }
    // What is not there yet, a directory, a path within a word, and the interpreter of a script.
    let project = brig.home().join("project");
    let project = project.to_str().unwrap();
    brig.write("script", &format!("#!{project}/interpreter\n"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(brig.home().join("script"), mode).unwrap();
    for tool in [
        &format!("x=python3 {project}/later.py"),
        &format!("x=python3 {project}"),
        &format!("x=sh -c '. {project}/later'"),
        &format!("x=env PYTHONPATH={project} python3 -m later"),
        "x=../script",
    ] {
        assert_eq!(code(run("project", tool)), "tool.writable", "{tool}");
    }
    // Controls.
    assert_eq!(code(run("project", "x=python3 ../tool.py")), json!(null));
    assert_eq!(code(run("project", "x=tr a-z A-Z")), json!(null));
    let read_only = [
        "run",
        "-v",
        "./project:/project",
        "--tool",
        "x=python3 project/tool.py",
        "-c",
        "1",
    ];
    brig.run(read_only).exits(0);
    let writable = [
        "run",
        "-v",
        "./project:/project:rw",
        "--tool",
        "x=python3 project/tool.py",
        "-c",
        "1",
    ];
    brig.run(writable)
        .exits(125)
        .complains("the sandbox could change it");
}

/// Waits until a process with this text runs, or runs no more.
fn wait_for(marker: &str, runs: bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_running(marker) != runs {
        assert!(Instant::now() < deadline, "{marker}: {runs}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_is_left_when_brig_is_killed() {
    let brig = Brig::new();
    let (own, left) = (digits(), digits());
    brig.write("fetch.sh", &format!("setsid sleep {left} &\nsleep {own}\n"));
    let mut command = brig.command([
        "tools",
        "call",
        "x",
        "--timeout",
        "10m",
        "--tool",
        "x=sh ./fetch.sh",
    ]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&own, true);
    wait_for(&left, true);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(&own, false);
    wait_for(&left, false);
}

#[test]
fn an_agent_file_starts_no_tool_without_trust() {
    let brig = Brig::new();
    fs::create_dir(brig.home().join("agents")).unwrap();
    // A server that only leaves a mark is no server: where it is started, the run fails.
    brig.write("agents/server.sh", "touch \"$(dirname \"$0\")/started\"\n");
    let agent = "name: a\ncommand: ['true']\nruntime:\n  mcp_servers:\n    s: {command: [sh, ./server.sh]}\n";
    brig.write("agents/agent.yaml", agent);
    let run = || brig.run(["agent", "run", "--json", "agents/agent.yaml"]);
    let refused = run()
        .exits(125)
        .complains("runs `sh` `./server.sh` on the host");
    assert_eq!(refused.json()["error"]["code"], "agent.untrusted");
    assert!(!brig.home().join("agents/started").exists());
    brig.run(["agent", "trust", "agents/agent.yaml"])
        .exits(0)
        .complains("runs `sh` `./server.sh` on the host");
    let started = run().exits(125);
    assert_eq!(started.json()["error"]["code"], "tool.unavailable");
    assert!(brig.home().join("agents/started").exists(), "control");
    // A command is found and checked, but not started.
    let agent =
        "name: a\ncommand: ['true']\nruntime:\n  tools:\n    t: {command: [sh, ./server.sh]}\n";
    brig.write("agents/agent.yaml", agent);
    assert_eq!(run().exits(125).json()["error"]["code"], "agent.untrusted");
    brig.run(["agent", "trust", "agents/agent.yaml"]).exits(0);
    run().exits(0);
    // What else decides what it runs, and what leaves the machine.
    let agent = "name: a\ncommand: ['true']\nruntime:\n  tools:\n    t: {command: [/bin/date, 'a` b'], \
        env: {LD_PRELOAD: ./evil.so}}\n  mcp_servers:\n    s: {url: 'http://127.0.0.1:9/', \
        headers: ['Authorization: Bearer $API_TOKEN']}\n";
    brig.write("agents/agent.yaml", agent);
    run()
        .exits(125)
        .complains("runs `/bin/date` `a\\x60 b` on the host")
        .complains("the variable `LD_PRELOAD=./evil.so`")
        .complains("the header `Authorization: Bearer $API_TOKEN`");
}

/// `examples/tools`, with one tool of each kind, and the server with a URL.
#[cfg(feature = "mcp")]
pub(crate) struct Example {
    server: std::process::Child,
    flags: Vec<String>,
}

#[cfg(feature = "mcp")]
pub(crate) const EXAMPLE_OUTPUT: &str = r#"<results for {"args":["cs.CL"]}>
5
noon, UTC
tool.denied
tool.not-allowed
"#;

#[cfg(feature = "mcp")]
impl Example {
    pub(crate) fn new() -> Self {
        use std::io::{BufRead, BufReader};

        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/tools");
        let path = |name: &str| directory.join(name).display().to_string();
        let mut server = std::process::Command::new("/usr/bin/python3")
            .args([&path("server.py"), "--http"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut port = String::new();
        BufReader::new(server.stdout.as_mut().expect("piped"))
            .read_line(&mut port)
            .expect("a port");
        let flags = [
            "--policy".into(),
            path("policy.yaml"),
            "--tool".into(),
            format!("fetch_arxiv={}", path("fetch_arxiv")),
            "--mcp-server".into(),
            format!("calculator=/usr/bin/python3 {}", path("server.py")),
            "--mcp-server".into(),
            format!("clock=http://127.0.0.1:{}/mcp", port.trim()),
            "--mcp-tool".into(),
            "calculator.add".into(),
            "--mcp-tool".into(),
            "clock.now".into(),
            "--mcp-tool".into(),
            "clock.delete".into(),
            path("program.py"),
        ];
        Self {
            server,
            flags: flags.into(),
        }
    }

    pub(crate) fn command<'a>(&'a self, backend: &[&'a str]) -> Vec<&'a str> {
        let flags = self.flags.iter().map(String::as_str);
        let words = ["run"].into_iter().chain(backend.iter().copied());
        words.chain(flags).collect()
    }
}

#[cfg(feature = "mcp")]
impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[cfg(feature = "mcp")]
#[test]
fn the_example_runs() {
    let example = Example::new();
    let done = Brig::new().run(example.command(&[]));
    assert_eq!(done.exits(0).stdout(), EXAMPLE_OUTPUT);
}

/// In a run and in a session, of which only the policy is kept: tools are given again.
#[test]
fn sandboxed_code_calls_commands_and_servers() {
    let brig = Brig::new();
    let policy =
        "version: '1.0'\nname: p\ntool_allowlist: [shout, repeat]\ndefaults: {action: allow}\n";
    brig.write("policy.yaml", policy);
    let good = server("good");
    let tools = [
        "--tool",
        SHOUT,
        "--mcp-server",
        &good,
        "--mcp-tool",
        "test.echo=repeat",
    ];
    let script =
        "brig-tool shout '{\"a\": 1}' && brig-tool repeat '{\"b\": 2}'; brig-tool pid; true";
    let check = |output: String| {
        assert!(output.contains("\"A\"") && output.contains("b"), "{output}");
        assert_eq!(output.lines().count(), 2, "{output}");
    };
    let run = ["run", "--policy", "policy.yaml"].into_iter();
    let run = run.chain(tools).chain(["--", "sh", "-c", script]);
    check(brig.run(run).exits(0).stdout());
    let create = ["session", "create", "s", "--policy", "policy.yaml"];
    brig.run(create.into_iter().chain(tools)).exits(0);
    let exec = ["session", "exec"].into_iter().chain(tools);
    let exec = exec.chain(["s", "--", "sh", "-c", script]);
    check(brig.run(exec).exits(0).stdout());
    // What the policy lists and nobody provides is an error when the session is created.
    brig.run([
        "session",
        "create",
        "t",
        "--policy",
        "policy.yaml",
        "--tool",
        SHOUT,
    ])
    .exits(125)
    .complains("repeat");
}

/// Servers that others wrote, as `scripts/lib/mcp-servers` has installed them, called by code in a sandbox.
#[cfg(feature = "mcp")]
#[test]
fn sandboxed_code_calls_servers_of_others() {
    let test = "tools::sandboxed_code_calls_servers_of_others";
    let place = std::env::var_os("BRIG_TEST_MCP_SERVERS").map(PathBuf::from);
    let pypi = place.as_ref().map(|place| place.join("pypi"));
    let index = "npm/node_modules/@modelcontextprotocol/server-memory/dist/index.js";
    let npm = place.as_ref().map(|place| place.join(index));
    let (Some(pypi), Some(npm)) = (
        pypi.filter(|path| path.exists()),
        npm.filter(|path| path.exists()),
    ) else {
        brig_testing::skip(
            test,
            "the servers are not installed: scripts/lib/mcp-servers",
        );
        return;
    };
    let brig = Brig::new();
    let policy = "version: '1.0'\nname: p\ntool_allowlist: [now, create_entities, read_graph]\ndefaults: {action: allow}\n";
    brig.write("policy.yaml", policy);
    let environment = [
        format!("PYTHONPATH={}", pypi.display()),
        format!(
            "MEMORY_FILE_PATH={}",
            brig.home().join("memory.json").display()
        ),
    ];
    let memory = format!("memory=node '{}'", npm.display());
    let code = "
from brig_tools import ToolError, create_entities, now, read_graph
print('UTC' in str(now(timezone='UTC')))
try:
    now(timezone='Nowhere')
except ToolError as error:
    print(error.code)
create_entities([{'name': 'Brig', 'entityType': 'ship', 'observations': ['two masts']}])
print('two masts' in str(read_graph()))
try:
    from brig_tools import delete_entities
except ImportError:
    print('not listed')
";
    let words = [
        "run",
        "--policy",
        "policy.yaml",
        "--tool-env",
        &environment[0],
        "--tool-env",
        &environment[1],
        "--mcp-server",
        "time=/usr/bin/python3 -m mcp_server_time --local-timezone UTC",
        "--mcp-tool",
        "time.get_current_time=now",
        "--mcp-server",
        &memory,
        "-c",
        code,
    ];
    brig.run(words)
        .exits(0)
        .prints("True\ntool.failed\nTrue\nnot listed\n");
}

/// The policy of AGT's README, as it is printed there.
pub(crate) const AGT_POLICY: &str = r#"name: research-agent
version: "2"

defaults:
  action: allow
  max_cpu: 1.0
  max_memory_mb: 2048
  timeout_seconds: 90
  network_default: deny

network_allowlist:
  - api.openai.com
  - "*.github.com"

tool_allowlist:
  - fetch_arxiv

rules:
  - name: deny-shell-out
    condition: { field: code, operator: contains, value: subprocess }
    action: deny
    priority: 100
    message: "shell-out blocked by research-agent policy"
"#;

/// Runs the program of AGT's README under that policy, and one that the policy denies.
pub(crate) fn check_agt_readme(brig: &Brig, run: impl Fn(&[&str]) -> crate::common::Done) {
    brig.write("policy.yaml", AGT_POLICY);
    let fetch = "fetch_arxiv=sh -c 'printf \"<results for %s>\" \"$(cat)\"'";
    let with = |code: &str| {
        let flags = ["--policy", "policy.yaml", "--tool", fetch, "-c"];
        // Where the machine can't enforce them; nothing of the policy is changed.
        let waived = ["--waive", "memory,cpu"];
        run(&[&["run"], &waived[..], &flags[..], &[code]].concat())
    };
    with("print(fetch_arxiv('cs.CL'))")
        .exits(0)
        .prints("<results for {\"args\":[\"cs.CL\"]}>\n");
    with("import subprocess")
        .exits(126)
        .complains("shell-out blocked by research-agent policy");
}

#[test]
fn the_program_of_agts_readme_runs_as_printed() {
    let brig = Brig::new();
    check_agt_readme(&brig, |words| brig.run(words));
}
