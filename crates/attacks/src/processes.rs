//! Processes: whom one sees, and who stays (attacks 14, 18, 19, 22).

use std::process::{Command, Stdio};
use std::time::Duration;

use brig_sandbox::{Event, ExecutionStatus, Limit, Limits, Request, SessionConfig};
use serde_json::json;

use crate::fence::{Fence, until};
use crate::target::{AttackTarget, request, run_in};
use crate::{host, probe};

#[macro_export]
macro_rules! processes {
    ($target:path) => {
        $crate::attacks!($target, processes:
            host_processes_are_invisible,
            executions_do_not_see_each_other,
            daemons_end_with_their_execution,
            orphans_are_reaped,
            an_abandoned_execution_ends,
        );
    };
}

const SOON: Duration = Duration::from_secs(60);
/// How many seconds what must be ended would stay: longer than anybody waits, three times on gVisor.
const STAYS: u32 = 400;

/// A process of the host that is easy to find.
fn sleeper(marker: &str) -> std::process::Child {
    Command::new("bash")
        .args(["-c", &format!("exec -a {marker} sleep {STAYS}")])
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// Attack 14.
pub async fn host_processes_are_invisible(target: &AttackTarget) {
    let marker = host::marker();
    let mut victim = sleeper(&marker);
    assert!(until(SOON, || host::processes_named(&marker).len() == 1));
    let args = json!({"marker": marker, "pid": victim.id(), "own": target.own_processes});
    let control = Fence::plain().run(&probe!("processes"), &args).whole();
    let inside = target.run(&probe!("processes"), &args).await;
    victim.kill().unwrap();
    victim.wait().unwrap();
    inside.assert_held(&control);
}

/// Attack 14, between two executions of one session.
pub async fn executions_do_not_see_each_other(target: &AttackTarget) {
    let marker = host::marker();
    let session = target.session(SessionConfig::default()).await;
    let script = format!("exec -a {marker} sleep {STAYS}");
    let mut asked = Request::command(["bash", "-c", &script]);
    asked.timeout = Some(Duration::from_secs(STAYS.into()));
    let victim = session.start(asked).await.unwrap();
    assert!(until(SOON, || host::processes_named(&marker).len() == 1));
    let args = json!({
        "marker": marker, "pid": host::processes_named(&marker)[0], "own": target.own_processes,
    });
    run_in(&session, &probe!("processes"), &args)
        .await
        .assert_all_failed();
    victim.cancel();
    victim.wait().await.unwrap();
    session.destroy().await.unwrap();
}

/// Attack 18.
pub async fn daemons_end_with_their_execution(target: &AttackTarget) {
    let left = host::marker();
    let control = json!({"marker": left, "seconds": STAYS});
    Fence::plain()
        .run(&probe!("daemon"), &control)
        .whole()
        .assert_all_worked();
    until(SOON, || host::processes_named(&left).len() == 1);
    let survivors = host::processes_named(&left);
    survivors.iter().for_each(|pid| host::end(*pid));
    assert_eq!(
        survivors.len(),
        1,
        "outside, the daemon outlives everything"
    );

    let marker = host::marker();
    let args = json!({"marker": marker, "seconds": STAYS});
    let session = target.session(SessionConfig::default()).await;
    run_in(&session, &probe!("daemon"), &args)
        .await
        .assert_all_worked();
    let gone = target.until_runs(&session, &marker, false, SOON).await;
    assert!(gone, "a daemon outlived its execution");
    session.destroy().await.unwrap();
    assert!(!target.left(&marker));

    let once = host::marker();
    target
        .run(
            &probe!("daemon"),
            &json!({"marker": once, "seconds": STAYS}),
        )
        .await;
    assert!(!target.left(&once), "a daemon outlived its sandbox");
}

/// Attack 19: 50,000 orphans in one execution.
pub async fn orphans_are_reaped(target: &AttackTarget) {
    // The probe is the first process of the fence and never waits for strangers.
    let few = json!({"count": 200, "batch": 100, "patience": 0});
    let control = Fence::processes().run(&probe!("zombies"), &few).whole();
    assert!(
        control.ok("zombies stay"),
        "where nobody reaps they stay: {control:#?}"
    );

    // Where a kernel in user space starts each of them, so many take minutes.
    let count = if target.own_kernel { 400 } else { 50_000 };
    let many = json!({"count": count, "batch": 100});
    let limits = Limits {
        timeout: Limit::asked(Duration::from_secs(300)),
        ..Limits::default()
    };
    let config = SessionConfig {
        limits,
        ..SessionConfig::default()
    };
    let session = target.session(config).await;
    let inside = run_in(&session, &probe!("zombies"), &many).await;
    target.clear_away(session).await;
    assert!(
        !inside.ok("zombies stay") && !inside.ok("processes stay"),
        "{inside:#?}"
    );
    assert!(
        inside.ok("storm") && inside.ok("budget is back"),
        "{inside:#?}"
    );
}

/// Attack 22: whoever listens goes away in the middle of the stream.
pub async fn an_abandoned_execution_ends(target: &AttackTarget) {
    let marker = host::marker();
    let args = json!({"marker": marker, "way": "daemons", "seconds": STAYS});
    let session = target.session(SessionConfig::default()).await;
    let mut asked = request(&probe!("stubborn"), &args);
    asked.timeout = Some(Duration::from_secs(STAYS.into()));
    asked.stream = true;
    let mut running = session.start(asked).await.unwrap();
    while let Some(event) = running.next_event().await {
        if matches!(event, Event::Stdout(_)) {
            break;
        }
    }
    assert!(
        target.until_runs(&session, &marker, true, SOON).await,
        "it runs while heard"
    );
    let id = running.id().clone();
    drop(running);
    assert!(
        target.until_runs(&session, &marker, false, SOON).await,
        "it goes on unheard"
    );
    let known = session.execution(&id).unwrap();
    assert!(
        until(SOON, || session.execution(&id).unwrap().status
            == ExecutionStatus::Cancelled),
        "{known:?}"
    );
    let after = session.run(vec!["true".into()]).await.unwrap();
    assert!(after.outcome.success());
    session.destroy().await.unwrap();
}
