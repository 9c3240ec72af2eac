//! Sockets and shared objects of the host (attacks 57 and 58), and its network.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use brig_sandbox::{Session, SessionConfig};
use serde_json::json;

use crate::fence::Fence;
use crate::ground::{Ground, mount, mount_spec, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! ipc {
    ($ground:path) => {
        $crate::attacks!($ground, ipc:
            sockets_in_mounted_folders_are_not_reachable,
            abstract_sockets_are_not_reachable,
            the_hosts_network_is_not_reachable,
            shared_objects_of_the_host_are_not_found,
            shared_objects_of_another_session_are_not_found,
        );
    };
}

const GREETING: &str = "from the host";

/// Greets everybody, and listens until they go.
fn greet(listener: UnixListener) {
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.set_read_timeout(Some(std::time::Duration::from_secs(3)));
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
pub async fn sockets_in_mounted_folders_are_not_reachable(ground: &Ground) {
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
    let control = Fence::plain().run(&probe!("connect"), &outside).whole();

    let inside = json!({"greeting": GREETING, "paths": paths("/mnt/data")});
    for writable in [false, true] {
        let config = mount(scratch.path(), "/mnt/data", writable);
        match ground.report(config, &probe!("connect"), &inside).await {
            Ok(report) => crate::ground::attempts(&report)
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
    match ground.report(config, &probe!("connect"), &workspace).await {
        Ok(report) => crate::ground::attempts(&report)
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
    match ground.report(single, &probe!("connect"), &args).await {
        Ok(report) => crate::ground::attempts(&report).whole().assert_all_failed(),
        Err(error) => assert_eq!(error.code(), "input.mount", "{error}"),
    }
    let later = host::scratch();
    let session = ground
        .session(mount(later.path(), "/mnt/data", false))
        .await;
    listen_at(&later.path().join("late"));
    let args = json!({"greeting": GREETING, "paths": {"late": "/mnt/data/late"}});
    run_in(&session, &probe!("connect"), &args)
        .await
        .assert_all_failed();
    session.destroy().await.unwrap();
}

/// Names without a file, through which descriptors could be passed.
pub async fn abstract_sockets_are_not_reachable(ground: &Ground) {
    let name = host::marker();
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    greet(UnixListener::bind_addr(&address).unwrap());
    for probe in [probe!("connect"), probe!("pass_descriptor")] {
        let args = json!({"greeting": GREETING, "abstract": name});
        let control = Fence::plain().run(&probe, &args).whole();
        let inside = ground.run(&probe, &args).await;
        inside.assert_held(&control);
    }
}

/// Only addresses of this very machine: nothing leaves it, even if nothing held.
pub async fn the_hosts_network_is_not_reachable(ground: &Ground) {
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
    let control = Fence::plain().run(&probe!("connect"), &args).whole();
    let inside = ground.run(&probe!("connect"), &args).await;
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
pub async fn shared_objects_of_the_host_are_not_found(ground: &Ground) {
    let args = json!({"key": 0x6272_6967 ^ std::process::id(), "name": host::marker()});
    let held = Fence::plain().hold(&probe!("sysv_make"), &args);
    let control = Fence::plain().run(&probe!("sysv_find"), &args).whole();
    let inside = ground.run(&probe!("sysv_find"), &args).await;
    drop(held);
    inside.assert_held(&control);
}

pub async fn shared_objects_of_another_session_are_not_found(ground: &Ground) {
    let args = json!({"key": 0x6272_6968 ^ std::process::id(), "name": host::marker()});
    let maker = ground.session(SessionConfig::default()).await;
    let (input, waiting) = tokio::io::duplex(64);
    let mut asked = crate::ground::request(&probe!("sysv_make"), &args);
    asked.stdin = Some(Box::new(waiting));
    asked.stream = true;
    let mut running = maker.start(asked).await.unwrap();
    let made = first_line(&mut running).await;
    if !made.contains("\"made\", \"ok\": true") {
        host::skip("control: the sandbox lets nobody make all of these objects");
    } else {
        let control = run_in(&maker, &probe!("sysv_find"), &args).await;
        let other: Session = ground.session(SessionConfig::default()).await;
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

async fn first_line(running: &mut brig_sandbox::Running) -> String {
    while let Some(event) = running.next_event().await {
        if let brig_sandbox::Event::Stdout(bytes) = event {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    String::new()
}
