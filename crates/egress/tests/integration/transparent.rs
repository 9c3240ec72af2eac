//! Programs that know of no proxy, in a network namespace without a route: names are answered with
//! addresses that lead to the gateway. The test starts itself again inside.

use std::fs;
use std::process::{Command, Output};

use crate::common::server::{Identity, Server, speaks_first};
use crate::common::{Lab, PUBLIC, allowing, namespace};
use brig_testing::{skip, test_name};

#[test]
fn programs_that_know_of_no_proxy_work_unchanged() {
    namespace::again(&test_name!(), "options timeout:5 attempts:1", inside);
}

fn inside() {
    let identity = Identity::new(&["good.example"]);
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem").display().to_string();
    fs::write(&ca, &identity.pem).expect("written");
    let (web, tls) = (Server::plain(), Server::tls(&identity));
    let lab = Lab::new(allowing(&["good.example", "mail.example:25/tcp"]));
    lab.name("good.example", &[PUBLIC])
        .name("mail.example", &[PUBLIC]);
    lab.route(PUBLIC, 80, web.address)
        .route(PUBLIC, 443, tls.address)
        .route(PUBLIC, 25, speaks_first());
    lab.dns_at("127.0.0.1:53");
    for port in ["0.0.0.0:80", "0.0.0.0:443", "0.0.0.0:25"] {
        lab.transparent(port);
    }
    let run = |program: &str, arguments: &[&str]| -> Option<Output> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
            .env("SSL_CERT_FILE", &ca)
            .env("NODE_EXTRA_CA_CERTS", &ca)
            .env("HOME", folder.path());
        match command.output() {
            Ok(output) => Some(output),
            Err(_) => {
                skip(
                    &format!("egress/transparent/{program}"),
                    "it is not installed",
                );
                None
            }
        }
    };
    let text = |output: &Output| {
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    let says = |program: &str, arguments: &[&str], said: &str| {
        if let Some(output) = run(program, arguments) {
            assert!(
                text(&output).contains(said),
                "{program} {arguments:?}: {}",
                text(&output)
            );
        }
    };
    says("curl", &["-sS", "http://good.example/curl"], "hello /curl");
    says(
        "curl",
        &["-sS", "--cacert", &ca, "https://good.example/tls"],
        "hello /tls",
    );
    says(
        "curl",
        &["-sS", "http://bad.example/"],
        "Could not resolve host",
    );
    says(
        "curl",
        &["-sSi", "-H", "Host: evil.io", "http://good.example/"],
        "x-brig-reason: network.mismatch",
    );
    says(
        "curl",
        &["-sSi", "http://198.18.200.200/"],
        "x-brig-reason: network.address",
    );
    says(
        "curl",
        &["-sSk", "https://198.18.200.200/"],
        "alert access denied",
    );
    says("wget", &["-qO-", "http://good.example/wget"], "hello /wget");
    let fetch = "fetch(process.argv[1]).then(a => a.text()).then(console.log, e => console.log(String(e.cause || e)))";
    says(
        "node",
        &["-e", fetch, "http://good.example/node"],
        "hello /node",
    );
    says(
        "node",
        &["-e", fetch, "https://good.example/node-tls"],
        "hello /node-tls",
    );
    says("node", &["-e", fetch, "http://bad.example/"], "ENOTFOUND");
    let socket = "import socket, sys\n\
        s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)\n\
        print(s.recv(100).decode())\n";
    says(
        "/usr/bin/python3",
        &["-c", socket, "mail.example", "25"],
        "220 ready",
    );
    says(
        "/usr/bin/python3",
        &["-c", socket, "bad.example", "25"],
        "Name or service not known",
    );
    says(
        "/usr/bin/python3",
        &["-c", socket, "93.184.216.34", "80"],
        "Network is unreachable",
    );
    says("getent", &["hosts", "good.example"], "198.18.0.");
    let denied = lab
        .seen
        .decided
        .lock()
        .expect("valid")
        .iter()
        .filter(|event| !event.decision.allowed)
        .count();
    assert!(denied >= 5, "{denied}");
    assert!(
        lab.looked_up()
            .iter()
            .all(|name| name == "good.example" || name == "mail.example")
    );
}
