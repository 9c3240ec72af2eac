//! A test that starts itself again in a network namespace with loopback only, and a resolver on it.

use std::fs;
use std::process::{Command, Stdio};

use brig_testing::{again_by, passes, skip};

const INSIDE: &str = "BRIG_EGRESS_INSIDE";

/// The handed-out addresses are on loopback too.
const SETUP: &str = "set -e
ip link set lo up
ip route add local 198.18.0.0/15 dev lo
mount --bind \"$BRIG_EGRESS_INSIDE\" \"$(readlink -f /etc/resolv.conf)\"
exec \"$@\"";

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount", "--"]);
    command
}

/// Runs `inside` in such a place, with these options of the resolver. `test` is the caller's name.
pub(crate) fn again(test: &str, options: &str, inside: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let probe = unshare()
        .args(["sh", "-c", "ip link set lo up && test -e /etc/resolv.conf"])
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        return skip(test, "needs unshare, ip, and a user namespace");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let resolver = folder.path().join("resolv.conf");
    let text = format!("nameserver 127.0.0.1\n{options}\n");
    fs::write(&resolver, text).expect("written");
    let mut unshare = unshare();
    unshare.args(["sh", "-c", SETUP, "sh"]);
    unshare.env(INSIDE, &resolver);
    passes(again_by(unshare, test));
}
