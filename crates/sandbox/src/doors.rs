//! The doors of a sandbox with a network: what its guest opens inside, and what programs are told of
//! it.

use std::collections::BTreeSet;

use brig_egress::Entry;
use brig_hosts::Ports;
use brig_wire::Transport::{Tcp, Udp};

use crate::Plan;

/// Where programs find the proxy, as their environment tells them.
const PROXY: u16 = 3128;
const DNS: u16 = 53;
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
const ANY: [u8; 4] = [0, 0, 0, 0];
/// Each door with what is spoken there, or nothing for DNS over UDP. A program that knows nothing of
/// proxies can use the ports that rules name; where a rule opens all ports, those of the web.
pub fn doors(plan: &Plan) -> Vec<(brig_wire::Door, Option<Entry>)> {
    let door = |transport, address, port| brig_wire::Door {
        transport,
        address,
        port,
    };
    let mut doors = vec![
        (door(Tcp, LOOPBACK, PROXY), Some(Entry::Proxy)),
        (door(Tcp, LOOPBACK, DNS), Some(Entry::Dns)),
        (door(Udp, LOOPBACK, DNS), None),
    ];
    let mut ports = BTreeSet::from([80, 443]);
    let layers = plan.network().layers.iter();
    ports.extend(
        layers
            .flat_map(|layer| &layer.allow)
            .filter_map(|rule| match rule.ports() {
                Ports::One(port) => Some(port),
                Ports::Web | Ports::Any => None,
            }),
    );
    // Taken already, on the address that programs would have to dial.
    ports.remove(&DNS);
    ports.remove(&PROXY);
    let most = brig_wire::MAX_DOORS - doors.len();
    let transparent = ports.into_iter().take(most);
    doors.extend(transparent.map(|port| (door(Tcp, ANY, port), Some(Entry::Transparent))));
    doors
}

/// For programs that can use a proxy: it sees names, so it can explain what it denies.
pub fn env(plan: &Plan) -> Vec<(String, String)> {
    if !plan.network().is_on() {
        return Vec::new();
    }
    let proxy = format!("http://127.0.0.1:{PROXY}");
    let variables = ["http_proxy", "https_proxy", "all_proxy"]
        .into_iter()
        .map(|name| (name, proxy.clone()))
        .chain([("no_proxy", "localhost,127.0.0.1,::1".to_owned())]);
    variables
        .flat_map(|(name, value)| {
            [
                (name.to_uppercase(), value.clone()),
                (name.to_owned(), value),
            ]
        })
        .filter(|(name, _)| plan.env().iter().all(|(given, _)| given != name))
        .collect()
}
