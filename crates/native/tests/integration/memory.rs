//! Who is told of a kill for want of memory.

use std::sync::Arc;
use std::time::Duration;

use brig_native::NativeBackend;
use brig_sandbox::config::Limit;
use brig_sandbox::{
    AgentId, Backend, Control, KillReason, Language, Outcome, Sandbox, Session, SessionConfig,
    Strength,
};

async fn session(memory: u64) -> (Session, Strength) {
    let backend = Arc::new(NativeBackend::new());
    let mut config = SessionConfig::default();
    config.limits.memory_bytes = Limit::default_of(memory);
    config.limits.timeout = Limit::asked(Duration::from_secs(60) * brig_testing::patience());
    let offer = backend.probe(&config).await.unwrap();
    let strength = offer.controls.strength(Control::Memory);
    let sandbox = Sandbox::builder(backend).build().unwrap();
    let agent: AgentId = "memory".parse().unwrap();
    let session = sandbox.create_session(&agent, None, config).await.unwrap();
    (session, strength)
}

async fn run(session: &Session, script: &str) -> Outcome {
    let report = session
        .run(vec!["sh".into(), "-c".into(), script.into()])
        .await;
    report.unwrap().outcome
}

const HOG: &str = "python3 -c 'x = bytearray(256 << 20)'";

/// What befell one execution and was survived is no business of the next.
#[tokio::test]
async fn the_next_execution_is_not_blamed() {
    let (session, strength) = session(64 << 20).await;
    if strength != Strength::Enforced {
        brig_testing::skip("the blame for memory", "no control group counts it here");
        return;
    }
    let hog = run(&session, HOG).await;
    assert!(
        matches!(hog.killed, Some(KillReason::Memory { .. })),
        "{hog:?}"
    );
    run(&session, &format!("{HOG}; exit 0")).await;
    for _ in 0..3 {
        let next = run(&session, "sleep 0.1").await;
        assert_eq!((next.exit_code, next.killed), (0, None));
    }
}

/// How many seconds a program keeps what must end it: longer than the watcher of a busy machine needs.
const STAYS: u32 = 30;

/// Memory that is shared without a file stays when it is not in use by anyone: a process can fill
/// much of it and never seem large.
#[tokio::test]
async fn shared_memory_that_is_not_in_use_is_counted() {
    let (session, _) = session(128 << 20).await;
    // What is too much stays until it is found. What fits ends.
    let take = |total: u64, before: &str, stays: u32| {
        format!(
            "import ctypes, mmap, os, time\n\
             {before}\n\
             total, step = {total}, 16 << 20\n\
             shared = mmap.mmap(-1, total)\n\
             for start in range(0, total, step):\n\
             \x20   for page in range(start, start + step, 4096): shared[page] = 1\n\
             \x20   shared.madvise(mmap.MADV_DONTNEED, start, step)\n\
             time.sleep({stays})\n"
        )
    };
    // Neither the name of a program nor that of a file need be UTF-8.
    let names = "ctypes.CDLL(None).prctl(15, b'\\xff', 0, 0, 0)\n\
                 file = os.open(b'/tmp/\\xff', os.O_RDWR | os.O_CREAT)\n\
                 os.write(file, bytes(4096))\n\
                 mapped = mmap.mmap(file, 4096)";
    for before in ["", names] {
        let fine = take(64 << 20, before, 1);
        let fine = session.execute_code(Language::Python, fine).await;
        assert_eq!(fine.unwrap().outcome.killed, None);
        let much = take(512 << 20, before, STAYS);
        let much = session.execute_code(Language::Python, much).await;
        let killed = much.unwrap().outcome.killed;
        assert!(
            matches!(killed, Some(KillReason::Memory { .. })),
            "{killed:?}"
        );
    }
}

/// Connections with data that nobody accepts. The kernel counts them to no control group.
fn connections(number: u32, stays: u32) -> String {
    format!(
        "exec python3 -c '
import socket
listeners = []
for at in range({number}):
    if at % 1000 == 0:
        listener = socket.create_server((\"127.0.0.1\", 0), backlog=4096)
        listeners.append(listener)
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(bytes(30000))
import time
time.sleep({stays})
print(\"made\")'"
    )
}

#[tokio::test]
async fn connections_that_nobody_accepts_are_counted() {
    let (session, _) = session(64 << 20).await;
    // The control: an ordinary queue.
    let few = run(&session, &connections(200, 1)).await;
    assert_eq!((few.exit_code, &few.killed), (0, &None), "{few:?}");
    let many = run(&session, &connections(4000, STAYS)).await;
    let killed = matches!(many.killed, Some(KillReason::Memory { .. }));
    assert!(killed, "{many:?}");
}

/// The kernel keeps every IPv6 address that a packet was sent to.
#[tokio::test]
async fn addresses_that_packets_are_sent_to_are_counted() {
    let send = |number: u32, stays: u32| {
        format!(
            "import socket, time\n\
             client = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
             for at in range({number}):\n\
             \x20   client.sendto(b'x', (f'2001:db8::{{at >> 16:x}}:{{at & 0xffff:x}}', 9))\n\
             time.sleep({stays})\n\
             print('sent')\n"
        )
    };
    const LIMIT: u64 = 32 << 20;
    let (session, _) = session(LIMIT).await;
    let few = session.execute_code(Language::Python, send(1000, 0)).await;
    let few = few.unwrap().outcome;
    if few.stdout.bytes != b"sent\n" {
        brig_testing::skip("addresses of packets", "the sandbox has no IPv6");
        return;
    }
    assert_eq!(few.killed, None);
    // To one address, as many as one likes.
    let one = send(100_000, 0).replace("{at >> 16:x}:{at & 0xffff:x}", "1");
    let one = session.execute_code(Language::Python, one).await;
    assert_eq!(one.unwrap().outcome.killed, None);
    let many = send(100_000, STAYS);
    let many = session.execute_code(Language::Python, many).await;
    match many.unwrap().outcome.killed {
        Some(KillReason::Memory { .. }) => {}
        // Some kernels forget addresses by themselves.
        None => assert!(512 * kept_addresses() < LIMIT, "{}", kept_addresses()),
        killed => panic!("{killed:?}"),
    }
}

/// How many addresses the kernel keeps, for all networks.
fn kept_addresses() -> u64 {
    let table = std::fs::read_to_string("/proc/net/stat/ndisc_cache").unwrap();
    let first = table.lines().nth(1).unwrap().split_whitespace().next();
    u64::from_str_radix(first.unwrap(), 16).unwrap()
}

/// Groups that a socket joins and sources that it accepts take memory that the kernel counts to nobody.
#[tokio::test]
async fn groups_and_sources_of_a_socket_are_few() {
    const JOIN: &str = "
import socket, struct

def address(family, host):
    if family == socket.AF_INET:
        return struct.pack('=HH4s', family, 0, host[-4:]).ljust(128, bytes(1))
    return struct.pack('=HHI16s', family, 0, 0, host).ljust(128, bytes(1))

def joined(family, option, sources):
    client = socket.socket(family, socket.SOCK_DGRAM)
    level = socket.IPPROTO_IP if family == socket.AF_INET else socket.IPPROTO_IPV6
    made = 0
    try:
        for made in range(8):
            group = bytes([255, 62]) + bytes(10) + bytes([230, 1, 1, made + 1])
            request = struct.pack('=I4x', 1) + address(family, group)
            if sources:
                request += address(family, bytes(12) + bytes([127, 0, 0, 2 + made]))
            client.setsockopt(level, option, request)
    except OSError:
        return made
    return 8

JOIN_GROUP, JOIN_SOURCE_GROUP = 42, 46
print(joined(socket.AF_INET, JOIN_GROUP, False),
      joined(socket.AF_INET, JOIN_SOURCE_GROUP, True),
      joined(socket.AF_INET6, JOIN_SOURCE_GROUP, True))
";
    let outside = std::process::Command::new("python3")
        .args(["-c", JOIN])
        .output()
        .unwrap();
    let outside = String::from_utf8_lossy(&outside.stdout);
    if outside.trim() != "8 8 8" {
        let why = format!("the control does not join all of them: {outside}");
        brig_testing::skip("groups of sockets", &why);
        return;
    }
    let (session, _) = session(64 << 20).await;
    let inside = session.execute_code(Language::Python, JOIN.to_owned());
    let inside = inside.await.unwrap().outcome;
    assert_eq!(inside.stdout.bytes, b"4 0 0\n", "{inside:?}");
}

/// Memory for options of a socket, which the kernel counts to nobody.
#[tokio::test]
async fn options_of_a_socket_take_little() {
    const JOIN: &str = "
import socket, struct
client = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
made = 0
try:
    for made in range(300):
        group = bytes([255, 5]) + bytes(10) + struct.pack('!I', made + 1)
        client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack('=I', 1))
except OSError:
    pass
print(made)
";
    let made = |output: &[u8]| -> u32 { String::from_utf8_lossy(output).trim().parse().unwrap() };
    let outside = std::process::Command::new("python3")
        .args(["-c", JOIN])
        .output()
        .unwrap();
    let (session, _) = session(64 << 20).await;
    let limit = run(&session, "cat /proc/sys/net/core/optmem_max").await;
    if made(&outside.stdout) < 299 || limit.exit_code != 0 {
        let why = "the machine has no more itself, or one limit for all networks";
        brig_testing::skip("options of sockets", why);
        return;
    }
    assert_eq!(limit.stdout.bytes, b"8192\n");
    let inside = run(&session, &format!("python3 -c \"{JOIN}\"")).await;
    assert!(made(&inside.stdout.bytes) < 200, "{inside:?}");
}
