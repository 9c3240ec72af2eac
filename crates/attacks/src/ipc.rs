//! Sockets and shared objects of the host (attacks 57 and 58), and its network.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brig_sandbox::{Limit, Session, SessionConfig};
use serde_json::{Value, json};

use crate::fence::Fence;
use crate::target::{AttackTarget, mount, mount_spec, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! ipc {
    ($target:path) => {
        $crate::attacks!($target, ipc:
            sockets_in_mounted_folders_are_not_reachable,
            no_way_leads_to_sockets_in_mounted_folders,
            own_sockets_work_beside_mounted_folders,
            abstract_sockets_are_not_reachable,
            the_hosts_network_is_not_reachable,
            shared_objects_of_the_host_are_not_found,
            shared_objects_of_another_session_are_not_found,
        );
    };
}

const GREETING: &str = "from the host";

/// The arguments of a control: what must answer is waited for much longer than what must not.
fn patient(args: &Value) -> Value {
    let mut args = args.clone();
    args["wait"] = json!(25);
    args
}

/// Greets everybody, and listens until they go.
fn greet(listener: UnixListener) {
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.set_read_timeout(Some(Duration::from_secs(3)));
            let _ = client.write_all(GREETING.as_bytes());
            let _ = client.read(&mut [0; 16]);
        }
    });
}

fn listen_at(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    greet(listener);
}

/// Attack 57: agents, engines and buses listen on files, and a file can be in a folder.
pub async fn sockets_in_mounted_folders_are_not_reachable(target: &AttackTarget) {
    let scratch = host::scratch();
    let names = [
        "docker.sock",
        "containerd.sock",
        "bus",
        "agent.1",
        "S.gpg-agent",
        "X0",
    ];
    names
        .iter()
        .for_each(|name| listen_at(&scratch.path().join(name)));
    let paths = |folder: &str| {
        names
            .iter()
            .map(|name| (name.to_string(), format!("{folder}/{name}")))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    let outside = json!({"greeting": GREETING, "paths": paths(scratch.path().to_str().unwrap())});
    let control = Fence::plain()
        .run(&probe!("connect"), &patient(&outside))
        .whole();

    let inside = json!({"greeting": GREETING, "paths": paths("/mnt/data")});
    for writable in [false, true] {
        let config = mount(scratch.path(), "/mnt/data", writable);
        match target.report(config, &probe!("connect"), &inside).await {
            Ok(report) => crate::target::attempts(&report)
                .whole()
                .assert_held(&control),
            Err(error) => assert_eq!(error.code(), "input.mount", "{error}"),
        }
    }
    let workspace = json!({"greeting": GREETING, "paths": paths("/workspace")});
    let config = SessionConfig {
        workspace: Some(scratch.path().into()),
        ..SessionConfig::default()
    };
    match target.report(config, &probe!("connect"), &workspace).await {
        Ok(report) => crate::target::attempts(&report)
            .whole()
            .assert_held(&control),
        Err(error) => assert_eq!(error.code(), "input.mount", "{error}"),
    }
    // A socket that is named itself, and one that appears when everything has been checked.
    let single = SessionConfig {
        mounts: vec![mount_spec(scratch.path().join("bus"), "/mnt/bus", false)],
        ..SessionConfig::default()
    };
    let args = json!({"greeting": GREETING, "paths": {"bus": "/mnt/bus"}});
    match target.report(single, &probe!("connect"), &args).await {
        Ok(report) => crate::target::attempts(&report).whole().assert_all_failed(),
        Err(error) => assert_eq!(error.code(), "input.mount", "{error}"),
    }
    let later = host::scratch();
    let session = target
        .session(mount(later.path(), "/mnt/data", false))
        .await;
    listen_at(&later.path().join("late"));
    let args = json!({"greeting": GREETING, "paths": {"late": "/mnt/data/late"}});
    run_in(&session, &probe!("connect"), &args)
        .await
        .assert_all_failed();
    session.destroy().await.unwrap();
}

/// A folder with a stream that greets and a datagram socket that counts, open to everybody.
fn folder_with_sockets() -> (tempfile::TempDir, Arc<AtomicUsize>) {
    let scratch = host::open_scratch();
    listen_at(&scratch.path().join("stream"));
    let datagrams = scratch.path().join("datagrams");
    let listener = UnixDatagram::bind(&datagrams).unwrap();
    std::fs::set_permissions(&datagrams, std::fs::Permissions::from_mode(0o777)).unwrap();
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&arrived);
    std::thread::spawn(move || {
        while listener.recv(&mut [0; 16]).is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (scratch, arrived)
}

/// Datagrams need no connection, names can be written in many ways, and what was looked at can
/// change before it is used.
pub async fn no_way_leads_to_sockets_in_mounted_folders(target: &AttackTarget) {
    let (scratch, arrived) = folder_with_sockets();
    let own = host::scratch();
    let outside = json!({
        "greeting": GREETING, "folder": scratch.path(), "own": own.path(), "writable": true,
    });
    let control = Fence::plain()
        .run(&probe!("host_sockets"), &patient(&outside))
        .whole();
    assert!(arrived.swap(0, Ordering::SeqCst) > 0, "the control arrives");

    let args = |folder: &str, writable: bool| json!({"greeting": GREETING, "folder": folder, "own": "/tmp", "writable": writable});
    let workspace = SessionConfig {
        workspace: Some(scratch.path().into()),
        ..SessionConfig::default()
    };
    for (config, args) in [
        (
            mount(scratch.path(), "/mnt/data", false),
            args("/mnt/data", false),
        ),
        (
            mount(scratch.path(), "/mnt/data", true),
            args("/mnt/data", true),
        ),
        // Below a folder of the sandbox's own, where sockets may be made.
        (
            mount(scratch.path(), "/tmp/data", true),
            args("/tmp/data", true),
        ),
        (workspace, args("/workspace", true)),
    ] {
        let report = target.report(config, &probe!("host_sockets"), &args).await;
        let inside = crate::target::attempts(&report.unwrap()).whole();
        inside.assert_held(&control);
        assert_eq!(arrived.load(Ordering::SeqCst), 0, "nothing arrives outside");
    }
}

/// What is closed is the host's: programs go on talking to each other.
pub async fn own_sockets_work_beside_mounted_folders(target: &AttackTarget) {
    let scratch = host::open_scratch();
    // In a container nobody makes connections and locks for programs, so there are no sockets on files,
    // and no locks unless the sandbox has its own kernel.
    let no_streams = target.backend.id().kind() != "native";
    let no_locks = no_streams && !target.own_kernel;
    let workspace = SessionConfig {
        workspace: Some(scratch.path().into()),
        ..SessionConfig::default()
    };
    for (mut config, own, watched) in [
        (SessionConfig::default(), "/tmp", vec!["/workspace"]),
        (
            mount(scratch.path(), "/mnt/data", true),
            "/tmp",
            vec!["/mnt/data"],
        ),
        (
            mount(scratch.path(), "/mnt/data", false),
            "/workspace",
            vec![],
        ),
        (workspace, "/dev/shm", vec!["/workspace"]),
    ] {
        config.limits.timeout = Limit::asked(Duration::from_secs(600));
        let none = config.workspace.is_none() && config.mounts.is_empty();
        // gVisor lets nobody wait for a place in a full queue.
        let args = json!({
            "own": own, "watched": watched,
            "no_streams": no_streams && !none, "no_locks": no_locks && !none,
            "no_crowd": target.own_kernel,
        });
        let report = target.report(config, &probe!("own_sockets"), &args).await;
        let inside = crate::target::attempts(&report.unwrap()).whole();
        inside.assert_all_worked();
    }
}

/// Names without a file, through which descriptors could be passed.
pub async fn abstract_sockets_are_not_reachable(target: &AttackTarget) {
    let name = host::marker();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    greet(UnixListener::bind_addr(&address).unwrap());
    for probe in [probe!("connect"), probe!("pass_descriptor")] {
        let args = json!({"greeting": GREETING, "abstract": name});
        let control = Fence::plain().run(&probe, &patient(&args)).whole();
        let inside = target.run(&probe, &args).await;
        inside.assert_held(&control);
    }
}

/// Only addresses of this very machine: nothing leaves it, even if nothing held.
pub async fn the_hosts_network_is_not_reachable(target: &AttackTarget) {
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    let (tcp_port, udp_port) = (
        tcp.local_addr().unwrap().port(),
        udp.local_addr().unwrap().port(),
    );
    std::thread::spawn(move || {
        for client in tcp.incoming() {
            let _ = client.and_then(|mut client| client.write_all(GREETING.as_bytes()));
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 16];
        while let Ok((_, from)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(GREETING.as_bytes(), from);
        }
    });
    let args = json!({
        "greeting": GREETING, "tcp": tcp_port, "udp": udp_port, "hosts": own_addresses(),
    });
    let control = Fence::plain()
        .run(&probe!("connect"), &patient(&args))
        .whole();
    let inside = target.run(&probe!("connect"), &args).await;
    inside.assert_held(&control);
}

/// Loopback, and whatever address the machine itself carries.
fn own_addresses() -> Vec<String> {
    let mut addresses = vec!["127.0.0.1".to_owned()];
    let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    for pair in lines.windows(2) {
        if let (Some(address), true) = (
            pair[0].strip_prefix("|-- "),
            pair[1].contains("/32 host LOCAL"),
        ) && !address.starts_with("127.")
            && !addresses.iter().any(|known| known == address)
        {
            addresses.push(address.to_owned());
        }
    }
    addresses
}

/// Attack 58.
pub async fn shared_objects_of_the_host_are_not_found(target: &AttackTarget) {
    let args = json!({"key": 0x6272_6967 ^ std::process::id(), "name": host::marker()});
    let held = Fence::plain().hold(&probe!("sysv_make"), &args);
    let control = Fence::plain().run(&probe!("sysv_find"), &args).whole();
    let inside = target.run(&probe!("sysv_find"), &args).await;
    drop(held);
    inside.assert_held(&control);
}

pub async fn shared_objects_of_another_session_are_not_found(target: &AttackTarget) {
    let args = json!({"key": 0x6272_6968 ^ std::process::id(), "name": host::marker()});
    let maker = target.session(SessionConfig::default()).await;
    let (input, waiting) = tokio::io::duplex(64);
    let mut asked = crate::target::request(&probe!("sysv_make"), &args);
    asked.stdin = Some(Box::new(waiting));
    asked.stream = true;
    let mut running = maker.start(asked).await.unwrap();
    let made = first_line(&mut running).await;
    if !made.contains("\"made\", \"ok\": true") {
        host::skip("control: the sandbox lets nobody make all of these objects");
    } else {
        let control = run_in(&maker, &probe!("sysv_find"), &args).await;
        let other: Session = target.session(SessionConfig::default()).await;
        let inside = run_in(&other, &probe!("sysv_find"), &args).await;
        inside.assert_held(&control);
        run_outside_too(&args);
        other.destroy().await.unwrap();
    }
    drop(input);
    running.wait().await.unwrap();
    maker.destroy().await.unwrap();
}

/// What a sandbox makes is not on the host either.
fn run_outside_too(args: &serde_json::Value) {
    Fence::plain()
        .run(&probe!("sysv_find"), args)
        .whole()
        .assert_all_failed();
}

async fn first_line(running: &mut brig_sandbox::ExecutionHandle) -> String {
    while let Some(event) = running.next_event().await {
        if let brig_sandbox::Event::Stdout(bytes) = event {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    String::new()
}
