//! Names are looked up as they were allowed, on a machine that searches a domain for more. The test
//! starts itself again in a network namespace of its own.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::common::namespace;
use brig_egress::{Host, Resolve, System};
use brig_testing::{skip, test_name};

#[test]
fn no_domain_is_searched_for_a_name_that_was_allowed() {
    let options = "search corp.test\noptions ndots:5 timeout:5 attempts:1";
    namespace::again(&test_name!(), options, inside);
}

/// A server that knows no name, and the names it was asked for.
fn nobody() -> Arc<Mutex<Vec<String>>> {
    let socket = UdpSocket::bind("127.0.0.1:53").expect("a port");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = asked.clone();
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let (mut name, mut at) = (String::new(), 12);
            while packet[at] > 0 {
                let label = &packet[at + 1..=at + usize::from(packet[at])];
                name += &String::from_utf8_lossy(label);
                name.push('.');
                at += label.len() + 1;
            }
            list.lock().expect("not poisoned").push(name);
            // An answer, and there is no such name.
            packet[2] |= 0x80;
            packet[3] = 0x83;
            let _ = socket.send_to(&packet[..length], from);
        }
    });
    asked
}

fn inside() {
    let asked = nobody();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut control = Command::new("getent");
    let _ = control.args(["hosts", "good.example"]).output();
    let searched = std::mem::take(&mut *asked.lock().expect("not poisoned"));
    if searched.is_empty() {
        return skip("egress/search", "getent does not ask by DNS here");
    }
    assert!(
        searched.contains(&"good.example.corp.test.".to_owned()),
        "control: this machine searches: {searched:?}"
    );
    for name in ["good.example", "intranet"] {
        let Ok(Host::Name(allowed)) = Host::parse(name) else {
            panic!("{name} is a name");
        };
        let found = runtime.block_on(System::default().resolve(&allowed));
        assert!(found.is_err(), "{found:?}");
        let asked = std::mem::take(&mut *asked.lock().expect("not poisoned"));
        assert!(!asked.is_empty(), "{name} was looked up");
        let own = format!("{name}.");
        assert!(asked.iter().all(|one| *one == own), "{asked:?}");
    }
}
