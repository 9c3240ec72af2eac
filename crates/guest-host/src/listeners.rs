//! The listeners that the guest opens in a sandbox, and the environment variables that point programs to
//! them.

use std::collections::BTreeSet;

use brig_egress::ListenerKind;
use brig_hosts::Ports;
use brig_sandbox::Plan;
use brig_wire::Transport::{Tcp, Udp};

use crate::tools;

/// The port of the proxy, which programs get in their environment.
const PROXY: u16 = 3128;
const DNS: u16 = 53;
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
const ANY: [u8; 4] = [0, 0, 0, 0];
/// npm repeats a failed lookup: by default after 10 s and again after 60 s.
const NPM_RETRIES: (&str, &str) = ("npm_config_fetch_retries", "0");
const NPM_WAITS: [(&str, &str); 2] = [
    ("npm_config_fetch_retry_mintimeout", "1000"),
    ("npm_config_fetch_retry_maxtimeout", "5000"),
];

/// What is served on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Connections to other hosts.
    Gateway(ListenerKind),
    /// DNS over UDP.
    Dns,
    /// Calls of tools.
    Tools,
}

/// Each listener with its service. Programs that don't use a proxy can use the
/// ports that rules name, and the ports of the web. With the network off there is only DNS, so that
/// lookups are recorded and fail at once.
pub fn listeners(plan: &Plan) -> Vec<(brig_wire::ListenerSpec, Service)> {
    let listener = |transport, address, port| brig_wire::ListenerSpec {
        transport,
        address,
        port,
    };
    let tools = (!plan.tools().is_empty())
        .then_some((listener(Tcp, LOOPBACK, tools::PORT), Service::Tools));
    let mut listeners = Vec::from_iter(tools);
    listeners.push((listener(Udp, LOOPBACK, DNS), Service::Dns));
    if !plan.network().is_on() {
        return listeners;
    }
    let gateway = Service::Gateway;
    listeners.extend([
        (listener(Tcp, LOOPBACK, PROXY), gateway(ListenerKind::Proxy)),
        (listener(Tcp, LOOPBACK, DNS), gateway(ListenerKind::Dns)),
    ]);
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
    // In use already, on the address that programs would have to connect to.
    ports.remove(&DNS);
    ports.remove(&PROXY);
    if !plan.tools().is_empty() {
        ports.remove(&tools::PORT);
    }
    let most = brig_wire::MAX_LISTENERS - listeners.len();
    let transparent = ports.into_iter().take(most);
    listeners.extend(
        transparent.map(|port| (listener(Tcp, ANY, port), gateway(ListenerKind::Transparent))),
    );
    listeners
}

/// For programs that can use a proxy: the proxy sees names, so it can explain a denial. npm without its proxy
/// variables would wait for more than a minute on a denied host. It gets variables that shorten that, and with
/// the network off one that stops its retries.
pub fn env(plan: &Plan) -> Vec<(String, String)> {
    let is_free = |name: &str| plan.env().iter().all(|(given, _)| given != name);
    if !plan.network().is_on() {
        let (name, value) = NPM_RETRIES;
        let retries = (name.to_owned(), value.to_owned());
        return Vec::from_iter(is_free(name).then_some(retries));
    }
    let waits = NPM_WAITS.map(|(name, value)| (name.to_owned(), value.to_owned()));
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
        .chain(waits)
        .filter(|(name, _)| is_free(name))
        .collect()
}
