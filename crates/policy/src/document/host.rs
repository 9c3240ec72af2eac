//! Hosts in a policy. What a host is, is the same everywhere: see `brig_hosts`.

use brig_hosts::Rule;
use brig_reason::ReasonCode;
use brig_schema::{Fault, Given, KeyPath, Reader};

const FIX: &str = "write a host such as `example.org`, `*.example.org`, `192.0.2.1` or `10.0.0.0/8`, with a `:port` or without";

pub(super) fn host(text: &str) -> Result<Rule, Fault> {
    Rule::parse(text).map_err(|error| {
        Fault::new(ReasonCode::PolicyHost, error.message()).fix(error.hint().unwrap_or(FIX))
    })
}

/// Says which entries open more than they seem to.
pub(super) fn warn(reader: &mut Reader<'_>, hosts: &[Given<Rule>], entry: &KeyPath<'_>) {
    for host in hosts {
        if let (Some(warning), Some(at)) = (host.value.warning(), host.at) {
            let (code, fix) = match host.value.opens() {
                Some(_) => (
                    ReasonCode::PolicyPrivateAddress,
                    "remove it, unless the code needs the service at exactly this address",
                ),
                None => (
                    ReasonCode::PolicyPublicHost,
                    "name the one host that is needed, or accept that data can be sent there",
                ),
            };
            let fault = Fault::new(code, warning.message);
            reader.log.warning(at, entry, fault.fix(fix));
        }
    }
}
