//! CPU time, also of what nobody waited for.

use std::time::{Duration, Instant};

use brig_sandbox::{Language, Limit, Request, Sandbox};

use crate::common::{Engine, GVISOR_GROUPS};

/// The child uses a second, and is never waited for. On gVisor its time is sampled: it stays for some samples more.
const CODE: &str = "
import os, time
ended, ends = os.pipe()
if os.fork() == 0:
    while time.process_time() < 1: pass
    time.sleep(5)
    os._exit(0)
os.close(ends)
os.read(ended, 1)
";

async fn what_nobody_waited_for_counts(runtime: &str) {
    let Some(engine) = Engine::with(runtime, "CPU time of containers") else {
        return;
    };
    let sandbox = Sandbox::builder(engine.backend().await)
        .build()
        .expect("a sandbox");
    let agent = "cpu".parse().expect("an agent");
    let request = Request::code(Language::Python, CODE);
    let report = sandbox.run_once(&agent, engine.config(runtime), request);
    let outcome = report.await.expect("it runs").outcome;
    assert!(outcome.success(), "{outcome:?}");
    let used = outcome.usage.cpu;
    assert!(used >= Duration::from_millis(700), "{used:?}");
}

#[tokio::test]
async fn what_nobody_waited_for_counts_on_runc() {
    what_nobody_waited_for_counts("runc").await;
}

#[tokio::test]
async fn what_nobody_waited_for_counts_on_gvisor() {
    what_nobody_waited_for_counts("gvisor").await;
}

/// On every processor, for a while.
const SPIN: &str = "
import os, time
for _ in range(3):
    if os.fork() == 0: break
began = time.time()
print('spinning', flush=True)
while time.time() < began + 4: pass
";

/// That no other container has.
const LIMIT: f64 = 0.43;

fn limit(engine: &Engine, container: &str) -> Option<f64> {
    let output = engine.curl("GET", &format!("/containers/{container}/json"));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    Some(found["HostConfig"]["NanoCpus"].as_f64()? / 1e9)
}

/// In seconds, as the engine counts for a whole container.
fn counted(engine: &Engine, container: &str) -> f64 {
    let path = format!("/containers/{container}/stats?stream=false&one-shot=true");
    let output = engine.curl("GET", &path);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let used = stats["cpu_stats"]["cpu_usage"]["total_usage"].as_f64();
    used.expect("a number") / 1e9
}

/// gVisor counts time in which a program waits for a processor, so its own counters show no limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gvisor_in_control_groups_has_its_limit() {
    let Some(engine) = Engine::with(GVISOR_GROUPS, "the CPU limit of gVisor") else {
        return;
    };
    let sandbox = Sandbox::builder(engine.backend().await)
        .build()
        .expect("a sandbox");
    let mut config = engine.config(GVISOR_GROUPS);
    config.limits.cpus = Limit::asked(LIMIT);
    let agent = "cpu".parse().expect("an agent");
    let session = sandbox.create_session(&agent, None, config).await;
    let session = session.expect("a session");
    let all = engine.containers(brig_docker::OWNER_LABEL);
    let container = all.iter().find(|one| limit(&engine, one) == Some(LIMIT));
    let container = container.expect("the container of the session");
    let mut request = Request::code(Language::Python, SPIN);
    request.stream = true;
    let mut running = session.start(request).await.expect("it starts");
    running.next_event().await.expect("it spins");
    let (began, before) = (Instant::now(), counted(&engine, container));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = counted(&engine, container) - before;
    let share = used / began.elapsed().as_secs_f64();
    assert!((0.05..0.6).contains(&share), "{share} processors");
    let outcome = running.wait().await.expect("a report").outcome;
    let (cpu, wall) = (outcome.usage.cpu, outcome.duration);
    assert!(cpu <= wall.mul_f64(LIMIT), "{cpu:?} in {wall:?}");
    session.destroy().await.expect("destroyed");
}
