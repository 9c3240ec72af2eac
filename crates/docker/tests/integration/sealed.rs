//! Code that writes to the stream of the guest, where the kernel lets it: nothing of it counts, and it hides
//! nothing.

use std::time::Duration;

use crate::common::{Engine, GVISOR_GROUPS};
use brig_sandbox::config::MIB;
use brig_sandbox::{
    AgentId, Error, KillReason, Language, Limit, Outcome, Request, Sandbox, SessionConfig,
};
use brig_wire::{FromGuest, Kind, Usage};

/// Opens every descriptor of the guest, says how many it could, writes these bytes to them, and then holds more
/// memory than it may. That is less than what the control group of gVisor has room for.
const CODE: &str = "
import os, time
BYTES = bytes.fromhex('FORGED')
opened = []
for number in range(16):
    try:
        opened.append(os.open(f'/proc/1/fd/{number}', os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        pass
print('opened:', len(opened), flush=True)
time.sleep(1)
for out in opened:
    try:
        os.write(out, BYTES)
    except OSError:
        pass
held = bytearray(240 << 20)
for page in range(0, len(held), 4096):
    held[page] = 1
time.sleep(300)
print('held')
";

/// What becomes of a program that writes this.
async fn forging(
    sandbox: &Sandbox,
    config: &SessionConfig,
    forged: &[u8],
) -> Result<Outcome, Error> {
    let hex: String = forged.iter().map(|byte| format!("{byte:02x}")).collect();
    let agent: AgentId = "agent".parse().expect("a name");
    let request = Request::code(Language::Python, CODE.replace("FORGED", &hex));
    let ended = sandbox.run_once(&agent, config.clone(), request).await;
    ended.map(|report| report.outcome)
}

async fn no_word_of_the_guest_can_be_forged(runtime: &str, reachable: bool) {
    let Some(engine) = Engine::with(runtime, &format!("the guest's stream on {runtime}")) else {
        return;
    };
    let sandbox = Sandbox::builder(engine.backend().await).build();
    let sandbox = sandbox.expect("sandbox");
    let mut config = engine.config(runtime);
    config.limits.memory_bytes = Limit::default_of(128 * MIB);
    config.limits.timeout = Limit::asked(Duration::from_secs(250));
    let usage = brig_wire::to_bytes(&FromGuest::Usage(Usage::default())).expect("a message");
    let usage = brig_wire::encode(Kind::Control, 0, &usage);
    match forging(&sandbox, &config, &usage).await {
        Ok(outcome) => {
            let memory = matches!(outcome.killed, Some(KillReason::Memory { .. }));
            assert!(memory, "{runtime}: {outcome:?}");
        }
        Err(error) => assert_eq!(error.code(), "backend.lost", "{runtime}: {error}"),
    }
    // What follows would be taken for its payload: all reports of the guest, which is silent from then on.
    let header = &brig_wire::encode(Kind::Data, 7, &[0; 60_000])[..brig_wire::HEADER];
    let outcome = forging(&sandbox, &config, header).await;
    let outcome = outcome.unwrap_or_else(|error| panic!("{runtime}: {error}"));
    let ended = match reachable {
        true => matches!(outcome.killed, Some(KillReason::Unobserved { .. })),
        false => matches!(outcome.killed, Some(KillReason::Memory { .. })),
    };
    assert!(ended, "{runtime}: {outcome:?}");
    // The control: where the kernel lets code, it did reach the stream.
    let text = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
    let opened = text.trim().strip_prefix("opened: ").map(str::parse::<u32>);
    let opened = opened.and_then(Result::ok).expect("it said so");
    assert_eq!(opened > 0, reachable, "{runtime}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_word_of_the_guest_can_be_forged_on_runc() {
    no_word_of_the_guest_can_be_forged("runc", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_word_of_the_guest_can_be_forged_on_gvisor() {
    no_word_of_the_guest_can_be_forged("gvisor", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_word_of_the_guest_can_be_forged_on_gvisor_with_groups() {
    no_word_of_the_guest_can_be_forged(GVISOR_GROUPS, true).await;
}

/// Writes this to every pipe of the other processes, and goes on.
const REPORT: &str = "
import os, time
REPORT = bytes.fromhex('FORGED')
own = str(os.getpid())
written = 0
for process in filter(str.isdigit, os.listdir('/proc')):
    try:
        names = [] if process == own else os.listdir(f'/proc/{process}/fd')
    except OSError:
        names = []
    for name in names:
        path = f'/proc/{process}/fd/{name}'
        try:
            if os.readlink(path).startswith('pipe:'):
                written += os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), REPORT) > 0
        except OSError:
            pass
print('pipes:', written, flush=True)
time.sleep(2)
print('ran')
";

/// What a keeper would tell the guest: that the program was never started, or that it succeeded.
async fn no_word_of_a_keeper_can_be_forged(runtime: &str) {
    let Some(engine) = Engine::with(runtime, &format!("the keeper's pipe on {runtime}")) else {
        return;
    };
    let sandbox = Sandbox::builder(engine.backend().await).build();
    let sandbox = sandbox.expect("sandbox");
    let agent: AgentId = "agent".parse().expect("a name");
    let never_started = [&b"E\x02\0\0\0execute\0"[..], &[0; 40]].concat();
    let succeeded = [&b"X\0\0\0\0\x01"[..], &[0; 16]].concat();
    for forged in [never_started, succeeded] {
        // As the pipe was once read, and with the length that it has now.
        let length = u16::try_from(forged.len()).expect("short").to_le_bytes();
        for forged in [forged.clone(), [&length[..], &forged, &[0; 8]].concat()] {
            let hex: String = forged.iter().map(|byte| format!("{byte:02x}")).collect();
            let request = Request::code(Language::Python, REPORT.replace("FORGED", &hex));
            let ended = sandbox.run_once(&agent, engine.config(runtime), request);
            let outcome = ended.await.expect("it ran, and that is known").outcome;
            let text = String::from_utf8_lossy(&outcome.stdout.bytes).into_owned();
            assert!(!text.is_empty(), "control: {runtime}: {outcome:?}");
            assert!(
                text.contains("ran\n") || !outcome.success(),
                "{runtime}: it was ended and is said to have succeeded: {outcome:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_word_of_a_keeper_can_be_forged_on_runc() {
    no_word_of_a_keeper_can_be_forged("runc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_word_of_a_keeper_can_be_forged_on_gvisor() {
    no_word_of_a_keeper_can_be_forged("gvisor").await;
}
