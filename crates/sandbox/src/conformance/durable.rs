//! Sessions that outlive their process. Another `Sandbox` on the same folder stands for it.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::fixture::{
    Done, Fixture, Stop, agent, check, check_eq, outcome, run, session_id, sh, skip, text, until,
};
use crate::config::MIB;
use crate::{Control, KillReason, SessionStatus};

pub async fn files_outlive_the_process(fixture: Fixture) -> Done {
    let id = session_id("s")?;
    let first = fixture.process()?;
    let mut config = fixture.config();
    config.env.push(("KEPT".into(), "yes".into()));
    let session = first
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    let script = "mkdir -p a/b; echo one > a/b/file; ln -s b a/link; chmod 640 a/b/file;
        printf x > 'odd name'; ln a/b/file a/hard; printf '\\377' > binary";
    text(&session, script).await?;
    session.upload("uploaded", 0o755, &b"content"[..]).await?;
    // Nothing is closed: the process ends.
    drop((session, first));

    let second = fixture.process()?;
    check_eq!(second.session_status(&agent(), &id), SessionStatus::Ready);
    let session = second.open_session(&agent(), &id).await?;
    let script = "cat a/link/file uploaded; stat -c '%a' a/b/file uploaded; readlink a/link;
        cat 'odd name'; echo $KEPT; wc -c < binary; echo two >> a/b/file; cat a/b/file";
    check_eq!(
        text(&session, script).await?,
        "one\ncontent640\n755\nb\nxyes\n1\none\ntwo\n"
    );
    check_eq!(second.list_sessions()?.len(), 1);
    session.destroy().await?;
    check!(
        fixture.process()?.list_sessions()?.is_empty(),
        "it is still there"
    );
    Ok(())
}

pub async fn removed_files_stay_removed(fixture: Fixture) -> Done {
    let id = session_id("s")?;
    let sandbox = fixture.process()?;
    let config = fixture.config();
    let session = sandbox
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    text(
        &session,
        "mkdir d e; touch d/1 d/2 e/1 file kept; mkdir -p deep/er; touch deep/er/x",
    )
    .await?;
    session.close().await?;
    text(
        &session,
        "rm file d/1; rm -r e deep; mkdir deep; touch deep/new; mv kept moved",
    )
    .await?;
    session.close().await?;
    let listing = "find . -mindepth 1 | sort | tr '\\n' ' '";
    check_eq!(
        text(&session, listing).await?,
        "./d ./d/2 ./deep ./deep/new ./moved "
    );
    text(&session, "touch file; mkdir e; touch e/2").await?;
    session.close().await?;
    check_eq!(
        text(&session, listing).await?,
        "./d ./d/2 ./deep ./deep/new ./e ./e/2 ./file ./moved "
    );
    Ok(())
}

pub async fn many_generations_stay_correct(fixture: Fixture) -> Done {
    let sandbox = fixture.process()?;
    let session = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    for round in 0..12 {
        let script = format!(
            "echo {round} > same; echo {round} > file-{round}; rm -f file-{}; mkdir -p d; echo {round} >> d/log",
            round - 3
        );
        text(&session, &script).await?;
        session.close().await?;
    }
    check_eq!(
        text(&session, "cat same; ls; wc -l < d/log").await?,
        "11\nd\nfile-10\nfile-11\nfile-9\nsame\n12\n"
    );
    let info = sandbox.list_sessions()?.remove(0);
    check!(info.layers <= 9, "{} layers", info.layers);
    Ok(())
}

/// The process that the operating system knows the instance by.
fn instance_pid(fixture: &Fixture, id: &str) -> Done<Pid> {
    let path = fixture
        .state()
        .join("sessions/conformance")
        .join(id)
        .join("owner.json");
    let owner: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let pid = owner["instance"]["pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok());
    match pid.and_then(Pid::from_raw) {
        Some(pid) => Ok(pid),
        None => skip("the instance is no process of this machine"),
    }
}

pub async fn a_killed_instance_is_replaced(fixture: Fixture) -> Done {
    let sandbox = fixture.process()?;
    let id = session_id("s")?;
    let config = fixture.config();
    let session = sandbox.create_session(&agent(), Some(id), config).await?;
    text(&session, "echo saved > file").await?;
    let running = session.start(sh("echo lost > other; sleep 60")).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    kill_process(instance_pid(&fixture, "s")?, Signal::KILL)?;
    let ended = tokio::time::timeout(Duration::from_secs(10), running.wait()).await;
    check!(
        ended.is_ok_and(|ended| ended.is_err()),
        "its end was not noticed"
    );
    check_eq!(text(&session, "cat file").await?, "saved\n");
    Ok(())
}

pub async fn one_process_at_a_time(fixture: Fixture) -> Done {
    let (first, second) = (fixture.process()?, fixture.process()?);
    let id = session_id("s")?;
    let config = fixture.config();
    let session = first
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    let running = session.start(sh("sleep 1; echo end")).await?;
    check_eq!(
        second.session_status(&agent(), &id),
        SessionStatus::Executing
    );
    let waiting = tokio::spawn(async move { second.open_session(&agent(), &id).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    check!(!waiting.is_finished(), "two processes have it open");
    check_eq!(outcome(running.wait().await?)?.stdout.bytes, b"end\n");
    session.close().await?;
    text(&waiting.await??, "echo mine now").await?;
    Ok(())
}

pub async fn destroy_from_another_process_wins(fixture: Fixture) -> Done {
    let (first, second) = (fixture.process()?, fixture.process()?);
    let id = session_id("s")?;
    let config = fixture.config();
    let session = first
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    let running = session.start(sh("trap '' TERM; sleep 60")).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    second.destroy_session(&agent(), &id).await?;
    check_eq!(
        second.session_status(&agent(), &id),
        SessionStatus::Destroyed
    );
    let ended = tokio::time::timeout(Duration::from_secs(5), running.wait()).await;
    let Ok(ended) = ended else {
        return Err(Stop::Failed("it runs on".into()));
    };
    check_eq!(outcome(ended?)?.killed, Some(KillReason::Destroyed));
    until("noticed", || session.status() == SessionStatus::Destroyed).await?;
    check!(
        session.start(sh("exit 0")).await.is_err(),
        "it can still be used"
    );
    second
        .create_session(&agent(), Some(id), fixture.config())
        .await?;
    Ok(())
}

pub async fn a_full_session_stays_within_its_limit(fixture: Fixture) -> Done {
    let sandbox = fixture.process()?;
    let mut config = fixture.config();
    config.limits.disk_bytes = fixture.limit(Control::Disk, 16 * MIB)?;
    let session = sandbox.create_session(&agent(), None, config).await?;
    let fill = |name: &str| sh(&format!("head -c 9000000 /dev/urandom > {name}"));
    check!(
        outcome(run(&session, fill("a")).await?)?.success(),
        "control: it fits once"
    );
    session.close().await?;
    check!(
        !outcome(run(&session, fill("b")).await?)?.success(),
        "it fits twice"
    );
    text(&session, "rm a b").await?;
    Ok(())
}
