use std::time::{Duration, Instant};

use brig_sandbox::config::MIB;
use brig_sandbox::{Control, Error, ExecutionStatus, KillReason, Limit, SessionConfig};

use super::fixture::{Done, Fixture, agent, check, check_eq, run, sh, text};
use super::program::{Step, cat, write};

/// How many seconds until what must not happen would happen: more than anything else takes on a busy or emulated
/// machine.
const LATE: u32 = 5;

pub(crate) async fn the_deadline_ends_the_whole_tree(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let mut limit_ms = 700;
    loop {
        let seconds = limit_ms / 1000 + u64::from(LATE);
        let script = format!(
            "echo began; (sleep {seconds}; touch late) & (setsid sh -c 'sleep {seconds}; touch later') &
            trap '' TERM HUP INT; sleep 60; touch last"
        );
        let mut request = sh(&script);
        request.timeout = Some(Duration::from_millis(limit_ms));
        let begun = Instant::now();
        let report = run(&session, request).await?;
        check_eq!(report.status(), ExecutionStatus::Failed);
        let outcome = report.outcome;
        check_eq!(outcome.killed, Some(KillReason::Timeout { limit_ms }));
        if outcome.stdout.bytes.is_empty() && limit_ms < 20_000 {
            // The machine is too slow for it to have begun.
            limit_ms *= 2;
            continue;
        }
        check_eq!(outcome.stdout.bytes, b"began\n");
        let end = begun + Duration::from_secs(seconds + 1);
        tokio::time::sleep_until(end.into()).await;
        check_eq!(text(&session, "ls").await?, "");
        return Ok(());
    }
}

pub(crate) async fn the_session_lives_on_after_a_deadline(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    fixture.output(&session, [write("file", "kept\n")]).await?;
    let mut request = fixture.program([Step::SleepMs(60_000)]);
    request.timeout = Some(Duration::from_millis(50));
    run(&session, request).await?;
    check_eq!(fixture.output(&session, [cat("file")]).await?, "kept\n");
    Ok(())
}

pub(crate) async fn too_much_memory_is_an_end(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let mut config = fixture.config();
    let limit = fixture.limit(Control::Memory, 64 * MIB).await?;
    config.limits.memory_bytes = limit;
    let session = fixture.session_with(config).await?;
    text(
        &session,
        "head -c 10000000 /dev/zero | tail -c 5000000 > /dev/null",
    )
    .await?;
    // Reads until its line ends, which is never.
    let report = run(&session, sh("tail -n 1 /dev/zero")).await?;
    check_eq!(report.status(), ExecutionStatus::Failed);
    let outcome = report.outcome;
    match outcome.killed {
        Some(KillReason::Memory {
            limit_bytes,
            peak_bytes,
        }) => {
            check_eq!(limit_bytes, 64 * MIB);
            check!(peak_bytes > 16 * MIB, "the peak was {peak_bytes}");
        }
        None if !limit.asked => {}
        other => check!(false, "it ended with {other:?}"),
    }
    text(&session, "echo the session lives on").await?;
    Ok(())
}

pub(crate) async fn processes_are_limited(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let mut config = fixture.config();
    config.limits.processes = fixture.limit(Control::Processes, 24).await?;
    let refused = config.limits.processes.asked && !fixture.counts_late();
    let session = fixture.session_with(config).await?;
    let crowd = |size: u32, seconds: u32| {
        sh(&format!(
            "for i in $(seq {size}); do sleep {seconds} & done; echo all; wait"
        ))
    };
    let few = run(&session, crowd(8, 2)).await?.outcome;
    check_eq!(few.stdout.bytes, b"all\n");
    // The first must still run when the last one starts, however slow the machine is.
    let many = run(&session, crowd(60, 50)).await?.outcome;
    // What is only watched may be late.
    check!(
        many.stdout.bytes.is_empty() || !refused,
        "60 processes were started under a limit of 24"
    );
    if many.killed.is_some() || !refused {
        check_eq!(many.killed, Some(KillReason::Processes { limit: 24 }));
    }
    text(&session, "echo the session lives on").await?;
    Ok(())
}

pub(crate) async fn the_disk_is_limited(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let mut config = fixture.config();
    config.limits.disk_bytes = fixture.limit(Control::Disk, 8 * MIB).await?;
    let session = fixture.session_with(config).await?;
    let fill = |place: &str, size: u32| sh(&format!("head -c {size} /dev/zero > {place}"));
    let large = run(&session, fill("large", 20_000_000)).await?.outcome;
    check!(
        !large.success(),
        "20 MB were written under a limit of 8 MiB"
    );
    text(&session, "rm -f large").await?;
    let small = run(&session, fill("small", 3_000_000)).await?.outcome;
    check!(small.success(), "control: 3 MB can be written: {small:?}");
    let mut all = true;
    for place in ["/tmp/a", "/dev/shm/b", "/tmp/c"] {
        all &= run(&session, fill(place, 3_000_000))
            .await?
            .outcome
            .success();
    }
    check!(!all, "all writable places together are limited");
    Ok(())
}

pub(crate) async fn cpu_is_limited(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let mut config = fixture.config();
    config.limits.cpus = fixture.limit(Control::Cpu, 1.0).await?;
    let session = fixture.session_with(config).await?;
    let script = "for i in 1 2 3 4; do timeout 2 sh -c 'while :; do :; done' & done; wait";
    let outcome = run(&session, sh(script)).await?.outcome;
    let (cpu, wall) = (
        outcome.usage.cpu.as_secs_f64(),
        outcome.duration.as_secs_f64(),
    );
    check!(wall > 1.5, "control: it was busy for {wall} s");
    check!(cpu > 0.2, "control: it used {cpu} s");
    check!(cpu < wall * 1.3, "{cpu} s of CPU in {wall} s");
    Ok(())
}

pub(crate) async fn the_network_is_off(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let devices = text(&session, "tail -n +3 /proc/net/dev | cut -d: -f1").await?;
    let devices: Vec<&str> = devices.split_whitespace().collect();
    check!(
        devices.iter().all(|name| *name == "lo"),
        "there is {devices:?}"
    );
    check_eq!(text(&session, "tail -n +2 /proc/net/route").await?, "");
    Ok(())
}

pub(crate) async fn the_root_is_read_only(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    for place in [
        "/x", "/usr/x", "/etc/x", "/bin/x", "/proc/x", "/run/x", "/dev/x",
    ] {
        let outcome = run(&session, sh(&format!("echo x > {place}")))
            .await?
            .outcome;
        check!(!outcome.success(), "{place} was written");
    }
    for place in ["/workspace/x", "/tmp/x", "/dev/shm/x", "/dev/null"] {
        text(&session, &format!("echo x > {place}")).await?;
    }
    Ok(())
}

pub(crate) async fn values_out_of_range_are_refused(fixture: Fixture) -> Done {
    let sandbox = fixture.sandbox()?;
    type Change = fn(&mut SessionConfig);
    let bad: [Change; 9] = [
        |config| config.limits.timeout = Limit::asked(Duration::ZERO),
        |config| config.limits.timeout = Limit::asked(Duration::from_secs(100_000)),
        |config| config.limits.memory_bytes = Limit::asked(0),
        |config| config.limits.memory_bytes = Limit::asked(u64::MAX),
        |config| config.limits.cpus = Limit::asked(f64::NAN),
        |config| config.limits.cpus = Limit::asked(-1.0),
        |config| config.limits.processes = Limit::asked(0),
        |config| config.limits.disk_bytes = Limit::asked(1),
        |config| config.limits.output_bytes = Limit::asked(0),
    ];
    for (index, change) in bad.into_iter().enumerate() {
        let mut config = fixture.config();
        change(&mut config);
        let refused = sandbox.create_session(&agent(), None, config).await;
        check!(
            matches!(refused, Err(Error::InvalidConfig { .. })),
            "{index}: {refused:?}"
        );
    }
    Ok(())
}

pub(crate) async fn nothing_outlives_its_execution(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let mut seconds = LATE;
    loop {
        let begun = Instant::now();
        let script = format!(
            "rm -f late later
            (sleep {seconds}; touch late) & (setsid nohup sh -c 'sleep {seconds}; touch later' >/dev/null 2>&1) &
            echo done"
        );
        let mut request = sh(&script);
        request.timeout = Some(Duration::from_secs(200));
        let outcome = run(&session, request).await?.outcome;
        check_eq!(outcome.stdout.bytes, b"done\n");
        let (took, limit) = (begun.elapsed(), Duration::from_secs(seconds.into()));
        if took >= limit && seconds < 60 {
            // It waits for what it has started, or the machine is too slow.
            seconds *= 2;
            continue;
        }
        check!(took < limit, "it waited {took:?}");
        tokio::time::sleep_until((begun + limit + Duration::from_secs(1)).into()).await;
        check_eq!(text(&session, "ls").await?, "");
        return Ok(());
    }
}
