//! Processes, processors, disk and the small things of the kernel (attacks 59, 61, 63).

use std::time::{Duration, Instant};

use brig_sandbox::config::{Limit, MIB};
use brig_sandbox::{Control, KillReason, Limits, Report, Sandbox, SessionConfig, Strength};
use serde_json::json;

use crate::fence::Fence;
use crate::target::{AttackTarget, agent, attempts, mount_spec, request, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! limits {
    ($target:path) => {
        $crate::attacks!($target, limits:
            process_and_thread_bombs_meet_their_cap,
            an_exponential_bomb_leaves_the_host_responsive,
            spinning_on_every_core_is_held_to_the_quota,
            another_session_keeps_its_share,
            more_processors_cannot_be_taken,
            the_disk_cap_holds_in_every_way,
            names_and_attributes_count_as_well,
            what_the_host_gave_to_write_is_not_said_to_be_limited,
            descriptors_and_kernel_objects_run_out_inside_only,
            deep_folders_harm_nobody,
        );
    };
}

/// A limit that is asked for where it can be held, and a default where it cannot.
fn wish<T>(target: &AttackTarget, control: Control, value: T) -> Limit<T> {
    if target.enforces(control) {
        Limit::asked(value)
    } else {
        Limit::default_of(value)
    }
}

fn with(limits: Limits) -> SessionConfig {
    SessionConfig {
        limits,
        ..SessionConfig::default()
    }
}

/// Attack 59.
pub async fn process_and_thread_bombs_meet_their_cap(target: &AttackTarget) {
    let cap = 64;
    for kind in ["processes", "threads"] {
        let args = json!({"kind": kind, "most": 4 * cap, "seconds": 10});
        Fence::processes()
            .run(&probe!("bomb"), &args)
            .whole()
            .assert_all_worked();

        let limits = Limits {
            processes: wish(target, Control::Processes, cap),
            // What they take before a watcher looks must not break another limit first.
            memory_bytes: Limit::default_of(2048 * MIB),
            ..Limits::default()
        };
        let session = target.session(with(limits)).await;
        let args = json!({"kind": kind, "most": 4 * cap, "seconds": 10, "hold": 5});
        let report = session
            .start(request(&probe!("bomb"), &args))
            .await
            .unwrap()
            .wait()
            .await
            .unwrap();
        let named = report
            .enforcement
            .iter()
            .find(|state| state.control == Control::Processes);
        assert_eq!(
            named.map(|state| state.strength),
            Some(target.strength(Control::Processes)),
            "{named:?}"
        );
        // In a kernel of its own the guest counts them.
        if target.enforces(Control::Processes) && !target.own_kernel {
            let inside = attempts(&report).whole();
            let found = inside.get("all of them");
            assert!(!found.ok, "{kind}: {found:?}");
            assert_eq!(found.errno.as_deref(), Some("EAGAIN"), "{kind}: {found:?}");
            assert!(
                found.value.as_u64().unwrap() < u64::from(cap),
                "{kind}: {found:?}"
            );
        } else {
            // Nothing refuses them; whoever watches ends it.
            let killed = report.outcome.killed;
            assert_eq!(killed, Some(KillReason::Processes { limit: cap }), "{kind}");
        }
        // The budget is back afterwards.
        let after = session
            .run(vec!["sh".into(), "-c".into(), "true & true & wait".into()])
            .await;
        match after {
            Ok(report) => assert!(report.outcome.success()),
            // Where nothing refuses them, the whole sandbox may have had to go.
            Err(error) => assert!(
                target.own_kernel && error.code() == "backend.lost",
                "{error}"
            ),
        }
        target.clear_away(session).await;
    }
}

/// Attack 59, the classic form.
pub async fn an_exponential_bomb_leaves_the_host_responsive(target: &AttackTarget) {
    let limits = Limits {
        processes: wish(target, Control::Processes, 100),
        timeout: Limit::asked(Duration::from_secs(20)),
        ..Limits::default()
    };
    let session = target.session(with(limits)).await;
    let args = json!({"seconds": 5});
    let running = session
        .start(request(&probe!("exponential"), &args))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // While it burns, the host starts processes as always.
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let start = Instant::now();
        assert!(
            std::process::Command::new("/bin/true")
                .status()
                .unwrap()
                .success()
        );
        slowest = slowest.max(start.elapsed());
    }
    assert!(
        slowest < Duration::from_secs(2),
        "the host was slow: {slowest:?}"
    );
    let alive = session.cancel(running.id());
    let start = Instant::now();
    let outcome = running.wait().await.unwrap().outcome;
    // It was still burning, or whoever watches put it out.
    let put_out = match outcome.killed {
        Some(KillReason::Processes { .. }) => true,
        Some(KillReason::Memory { .. }) => !target.enforces(Control::Memory),
        Some(KillReason::Unobserved { .. }) => target.own_kernel,
        _ => false,
    };
    assert!(alive || put_out, "{outcome:?}");
    // gVisor of 2022 may hang when it is ended in a storm; then the engine waits before it kills.
    let soon = Duration::from_secs(if target.own_kernel { 90 } else { 4 });
    assert!(start.elapsed() < soon, "{:?}", start.elapsed());
    target.clear_away(session).await;
}

/// Attack 61.
pub async fn spinning_on_every_core_is_held_to_the_quota(target: &AttackTarget) {
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores < 2 {
        return host::skip("there is only one processor, so one cannot take too many");
    }
    let args = json!({"processes": cores * 2, "seconds": 3});
    let spun =
        |attempts: &crate::probe::Attempts| attempts.get("spun").value.as_f64().unwrap() / 3.0;
    let control = spun(&Fence::processes().run(&probe!("spin"), &args).whole());
    let limits = Limits {
        cpus: wish(target, Control::Cpu, 1.0),
        ..Limits::default()
    };
    let one = spun(&target.run_with(with(limits), &probe!("spin"), &args).await);
    assert!(one < 1.25, "{one} processors instead of one");
    if control < 1.3 {
        host::skip(&format!(
            "control: the machine was too busy to give more than {control:.2} processors"
        ));
    }
    let half = Limits {
        cpus: Limit::asked(0.5),
        ..Limits::default()
    };
    match target.report(with(half), &probe!("spin"), &args).await {
        Ok(report) => {
            let used = spun(&attempts(&report).whole());
            assert!(used < 0.75, "{used} processors instead of a half");
        }
        Err(error) => {
            assert_eq!(error.code(), "policy.unenforceable", "{error}");
            host::skip(&format!("half a processor: {error}"));
        }
    }
}

/// Attack 61: the neighbour.
pub async fn another_session_keeps_its_share(target: &AttackTarget) {
    let cores = std::thread::available_parallelism().unwrap().get();
    let limits = Limits {
        cpus: wish(target, Control::Cpu, 1.0),
        ..Limits::default()
    };
    let (greedy, modest) = (
        target.session(with(limits.clone())).await,
        target.session(with(limits)).await,
    );
    let burn = json!({"processes": cores * 8, "seconds": 6});
    let burning = greedy.start(request(&probe!("spin"), &burn)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let alone = json!({"processes": 1, "seconds": 3});
    let got = run_in(&modest, &probe!("spin"), &alone).await;
    let share = got.get("spun").value.as_f64().unwrap() / 3.0;
    burning.cancel();
    burning.wait().await.unwrap();
    greedy.destroy().await.unwrap();
    modest.destroy().await.unwrap();
    if !target.enforces(Control::Cpu) {
        return host::skip(&format!(
            "the share of a neighbour ({share:.2}): nothing enforces it here"
        ));
    }
    assert!(
        share > 0.2,
        "the neighbour got only {share:.2} of a processor"
    );
}

/// Attack 61: affinity, where whole processors are what is given.
pub async fn more_processors_cannot_be_taken(target: &AttackTarget) {
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores < 2 {
        return host::skip("there is only one processor, so there are no more to take");
    }
    let args = json!({"cpus": 1});
    let control = Fence::plain()
        .through(["taskset", "-c", "0"])
        .run(&probe!("affinity"), &args)
        .whole();
    assert!(
        control.ok("more processors"),
        "outside, affinity is only a wish: {control:#?}"
    );
    let inside = target.run(&probe!("affinity"), &args).await;
    if inside.get("processors").value.as_array().unwrap().len() == 1 {
        assert!(!inside.ok("more processors"), "{inside:#?}");
    } else {
        assert!(
            target.enforces(Control::Cpu),
            "all processors are there and nothing holds them"
        );
    }
}

/// Attack 60 and 63: bytes.
pub async fn the_disk_cap_holds_in_every_way(target: &AttackTarget) {
    let ways = ["written", "allocated", "many small", "mapped", "unlinked"];
    fill(target, &ways).await;
}

/// Attack 63: what has no bytes of its own.
pub async fn names_and_attributes_count_as_well(target: &AttackTarget) {
    fill(target, &["empty files", "attributes"]).await;
}

async fn fill(target: &AttackTarget, ways: &[&str]) {
    let (cap, twice) = (16 * MIB, 32 * MIB);
    let scratch = host::open_scratch();
    for &way in ways {
        let args = |folder: &str, count: u64| json!({"folder": folder, "bytes": twice, "count": count, "way": way});
        let (few, many) = if way == "attributes" {
            (50, 20_000)
        } else {
            (50, 200_000)
        };
        let outside = Fence::plain()
            .run(
                &probe!("fill"),
                &args(scratch.path().to_str().unwrap(), few),
            )
            .whole();
        match outside.get(way).errno.as_deref() {
            Some("EOPNOTSUPP" | "ENOSPC") if way == "attributes" => {
                host::skip("control of attributes: the host's file system has no room for them");
            }
            _ => outside.assert_all_worked(),
        }
        for folder in ["/workspace", "/tmp", "/dev/shm"] {
            let limits = Limits {
                disk_bytes: Limit::asked(cap),
                ..Limits::default()
            };
            let session = target.session(with(limits)).await;
            let inside = run_in(&session, &probe!("fill"), &args(folder, many)).await;
            let found = inside.get(way);
            assert!(!found.ok, "{way} in {folder} went past the cap");
            let code = found.errno.as_deref().unwrap_or_default();
            assert!(
                ["ENOSPC", "EFBIG", "SIGBUS", "EDQUOT"].contains(&code),
                "{way}: {found:?}"
            );
            session.destroy().await.unwrap();
        }
    }
}

/// A directory of the host is not counted. So a limit that was asked for is refused with it, until it
/// is given up by name, and no result says that it holds.
pub async fn what_the_host_gave_to_write_is_not_said_to_be_limited(target: &AttackTarget) {
    let (cap, more) = (4 * MIB, 6 * MIB);
    let limits = |disk_bytes| Limits {
        disk_bytes,
        ..Limits::default()
    };
    let args =
        |folder: &str| json!({"folder": folder, "bytes": more, "count": 50, "way": "unlinked"});
    let stated = |report: &Report| {
        let disk = report
            .enforcement
            .iter()
            .find(|s| s.control == Control::Disk);
        disk.map(|state| state.strength)
    };
    let scratch = host::open_scratch();
    for as_workspace in [true, false] {
        let given = |disk, writable: bool| {
            let mut config = with(limits(disk));
            if as_workspace {
                config.workspace = writable.then(|| scratch.path().to_owned());
            } else {
                config.mounts = vec![mount_spec(scratch.path(), "/mnt/data", writable)];
            }
            target.config(config)
        };
        let sandbox = Sandbox::builder(target.backend.clone()).build().unwrap();
        let agent = &agent();
        let create = |config| sandbox.create_session(agent, None, config);
        let refused = create(given(Limit::asked(cap), true)).await.unwrap_err();
        assert_eq!(refused.code(), "policy.unenforceable", "{refused}");
        assert!(refused.to_string().contains("disk (absent: "), "{refused}");

        // Control: it is writable that makes the difference.
        let session = create(given(Limit::asked(cap), false)).await.unwrap();
        let report = session.start(request(&probe!("fill"), &args("/tmp"))).await;
        let report = report.unwrap().wait().await.unwrap();
        assert_eq!(stated(&report), Some(Strength::Enforced));
        assert!(!attempts(&report).get("unlinked").ok, "the cap holds");
        session.destroy().await.unwrap();

        let mut waived = given(Limit::asked(cap), true);
        waived.waive.insert(Control::Disk);
        let folder = if as_workspace {
            "/workspace"
        } else {
            "/mnt/data"
        };
        for config in [waived, given(Limit::default_of(cap), true)] {
            let session = create(config).await.unwrap();
            for (folder, held) in [(folder, false), ("/tmp", true)] {
                let report = session.start(request(&probe!("fill"), &args(folder))).await;
                let report = report.unwrap().wait().await.unwrap();
                assert_eq!(stated(&report), Some(Strength::Absent));
                let filled = attempts(&report);
                assert_eq!(!filled.get("unlinked").ok, held, "{folder}: {filled:?}");
            }
            session.destroy().await.unwrap();
        }
    }
}

/// Attack 63: what is used up inside is still there outside.
pub async fn descriptors_and_kernel_objects_run_out_inside_only(target: &AttackTarget) {
    let most = json!({
        "descriptors": 1_200_000, "inotify": 4096, "locks": 20_000, "terminals": 4000,
        "timers": 200_000,
    });
    let session = target.session(SessionConfig::default()).await;
    let (input, waiting) = tokio::io::duplex(64);
    let mut asked = request(
        &probe!("exhaust"),
        &json!({"folder": "/tmp", "kinds": most}),
    );
    asked.stdin = Some(Box::new(waiting));
    asked.stream = true;
    let mut running = session.start(asked).await.unwrap();
    let mut said = Vec::new();
    while let Some(event) = running.next_event().await {
        if let brig_sandbox::Event::Stdout(bytes) = event {
            said.extend_from_slice(&bytes);
            if String::from_utf8_lossy(&said).contains("holding") {
                break;
            }
        }
    }
    let few = json!({
        "descriptors": 200, "inotify": 8, "locks": 100, "terminals": 8, "timers": 100,
    });
    let scratch = host::scratch();
    let outside = json!({"folder": scratch.path(), "kinds": few});
    let control = Fence::plain().run(&probe!("exhaust"), &outside).whole();
    drop(input);
    running.wait().await.unwrap();
    let inside = crate::probe::Attempts::parse(&said, b"");
    control.assert_all_worked();
    // A kernel of its own has its own objects, and what they take of the host is memory.
    let kinds: &[&str] = if target.own_kernel {
        &["descriptors"]
    } else {
        &["descriptors", "inotify", "terminals", "timers"]
    };
    for kind in kinds {
        assert!(!inside.ok(kind), "{kind} never ran out inside: {inside:#?}");
    }
    // All sandboxes of a machine share three thousand of them.
    let terminals = inside.get("terminals").value.as_u64();
    assert!(
        target.own_kernel || terminals < Some(512),
        "one sandbox took {terminals:?} terminals"
    );
    session.destroy().await.unwrap();
}

/// Attack 63: a folder 100,000 levels deep, where it is listed, saved and removed.
pub async fn deep_folders_harm_nobody(target: &AttackTarget) {
    let state = tempfile::tempdir().unwrap();
    let sandbox = brig_sandbox::Sandbox::builder(target.backend.clone())
        .state_dir(state.path())
        .build()
        .unwrap();
    let session = sandbox
        .create_session(
            &crate::target::agent(),
            None,
            target.config(SessionConfig::default()),
        )
        .await
        .unwrap();
    session
        .upload("before", 0o644, &mut &b"kept"[..])
        .await
        .unwrap();
    let start = Instant::now();
    let running = session
        .start(request(
            &probe!("deep"),
            &json!({"folder": "/workspace", "levels": 100_000}),
        ))
        .await;
    // Saving it may fail, with a typed error; it may not take the process with it.
    match running.unwrap().wait().await {
        Ok(report) => {
            let made = attempts(&report).whole();
            assert!(
                made.get("levels").value.as_u64().unwrap() > 1000,
                "{made:#?}"
            );
        }
        Err(error) => assert!(error.code() == "session.not-saved", "{error}"),
    }
    let _ = session.list_files("d/d/d/d").await;
    let _ = session.list_files(&"d/".repeat(2000)).await;
    let mut kept = Vec::new();
    session.download("before", &mut kept).await.unwrap();
    assert_eq!(kept, b"kept");
    session.destroy().await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
    let left = walk(state.path());
    assert!(left < 20, "{left} entries are left of a destroyed session");
}

fn walk(folder: &std::path::Path) -> usize {
    let mut count = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            count += 1;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && count < 1000 {
                open.push(entry.path());
            }
        }
    }
    count
}
