//! Processes that wait behind a gate.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use brig_linux::gate::{GatedChild, GatedProgram, spawn_gated};
use brig_linux::process_stat::ProcessStat;

fn waiting(program: &str) -> GatedChild {
    let (program, null) = (
        File::open(program).unwrap(),
        File::open("/dev/null").unwrap(),
    );
    spawn_gated(&GatedProgram {
        namespaces: 0,
        program: program.as_fd(),
        argv: &[c"program"],
        descriptors: &[],
        null: null.as_fd(),
        cgroup: None,
        tasks: &[],
    })
    .unwrap()
}

fn soon(what: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Otherwise two of them could hold each other's gates open, and neither would ever notice the
/// death of its owner.
#[test]
fn one_that_waits_holds_nothing_of_its_owner() {
    let (mut read, write) = std::io::pipe().unwrap();
    let waiting = waiting("/bin/true");
    drop(write);
    assert_eq!(
        read.read(&mut [0]).unwrap(),
        0,
        "the pipe has no writer left"
    );
    assert!(Path::new(&format!("/proc/{}", waiting.pid())).exists());
}

#[test]
fn one_that_is_dropped_leaves_no_zombie() {
    let waiting = waiting("/bin/true");
    let place = format!("/proc/{}", waiting.pid());
    assert!(Path::new(&place).exists());
    drop(waiting);
    assert!(!Path::new(&place).exists());
}

#[test]
fn one_that_is_released_runs_its_program() {
    let (child, gate) = waiting("/bin/true").release().unwrap();
    let ended = || ProcessStat::of(child.pid()).is_ok_and(|stat| stat.has_ended());
    assert!(soon(ended));
    assert!(gate.failure().is_none());

    let (_child, gate) = waiting("/dev/null").release().unwrap();
    let (step, _) = gate.failure().unwrap();
    assert_eq!(step, "execute the guest");
}
