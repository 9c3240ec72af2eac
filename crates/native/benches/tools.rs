//! What one call of a tool takes, from Python code in a sandbox to a function of this program and back.
//!
//!     cargo bench -p brig-native --bench tools

use std::sync::Arc;
use std::time::Duration;

use brig_native::NativeBackend;
use brig_policy::{Compat, Document, PolicySet};
use brig_sandbox::{
    AgentId, FunctionTool, Language, Limit, Request, Sandbox, SessionConfig, ToolName,
    ToolRegistry, ToolSpec,
};

/// What is wanted of the median of one call.
const MOST: f64 = 300.0;
/// What is wanted of several processes at once, in calls per second.
const LEAST: f64 = 10_000.0;

/// Prints the median of a call in microseconds, and the calls per second of several processes.
const CODE: &str = "
import os, time
call_tool('echo')
times = []
for _ in range(5000):
    began = time.perf_counter()
    call_tool('echo')
    times.append(time.perf_counter() - began)
print(sorted(times)[len(times) // 2] * 1e6)
began = time.perf_counter()
workers = []
for _ in range(4):
    if (pid := os.fork()) == 0:
        for _ in range(5000):
            call_tool('echo')
        os._exit(0)
    workers.append(pid)
for pid in workers:
    os.waitpid(pid, 0)
print(4 * 5000 / (time.perf_counter() - began))
";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut registry = ToolRegistry::default();
    let name = ToolName::new("echo").expect("a name");
    let spec = ToolSpec::new(name, "Answers what it is given.");
    let echo = FunctionTool::new(spec, |arguments| async move { Ok(arguments.into()) });
    registry.add(echo).expect("the only tool");
    let text = "defaults: {action: allow, max_tool_calls: 1000000}\ntool_allowlist: [echo]\n";
    let loaded = Document::load("bench.yaml", text, Compat::Strict).expect("a policy");
    let policies = Arc::new(PolicySet::new(vec![loaded.document]));
    let mut config = SessionConfig::default().under(policies).expect("a config");
    config.limits.cpus = Limit::default_of(16.0);
    config.limits.timeout = Limit::default_of(Duration::from_secs(600));
    let sandbox = Sandbox::builder(NativeBackend::new())
        .tools(registry)
        .build()
        .expect("a sandbox");
    let agent: AgentId = "bench".parse().expect("a name");
    let request = Request::code(Language::Python, CODE);
    let report = runtime.block_on(sandbox.run_once(&agent, config, request));
    let outcome = report.expect("a report").outcome;
    let text = String::from_utf8_lossy(&outcome.stdout.bytes);
    let figures: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let [median, rate] = figures[..] else {
        panic!("{outcome:?}");
    };
    println!("one call           {median:>8.0} us  (wanted: {MOST:.0} us)");
    println!("calls per second   {rate:>8.0}     (wanted: {LEAST:.0})");
}
