//! Sessions that outlive their process. Another `Sandbox` on the same folder stands for it.

use std::time::Duration;

use brig_sandbox::config::MIB;
use brig_sandbox::{Control, Error, KillReason, SessionStatus};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::fixture::{
    Done, Fixture, Stop, agent, check, check_eq, run, session_id, sh, skip, text, until,
};
use super::program::{Step, cat, make_directory, print, remove, write};

pub(crate) async fn files_outlive_the_process(fixture: Fixture) -> Done {
    let id = session_id("s")?;
    let first = fixture.process()?;
    let mut config = fixture.config();
    config.env.push(("KEPT".into(), "yes".into()));
    let session = first
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    let steps = [make_directory("c/d"), write("c/d/file", "first\n")];
    fixture.output(&session, steps).await?;
    let userland = fixture.has(Control::LinuxUserland).await?;
    let script = "mkdir -p a/b; echo one > a/b/file; ln -s b a/link; chmod 640 a/b/file;
        printf x > 'odd name'; ln a/b/file a/hard; printf '\\377' > binary";
    if userland {
        text(&session, script).await?;
    }
    session.upload("uploaded", 0o755, &b"content"[..]).await?;
    // Nothing is closed: the process ends.
    drop((session, first));

    let second = fixture.process()?;
    check_eq!(second.session_status(&agent(), &id), SessionStatus::Ready);
    let session = second.open_session(&agent(), &id).await?;
    let steps = [
        cat("c/d/file"),
        cat("uploaded"),
        Step::PrintVariable("KEPT".into()),
    ];
    check_eq!(fixture.output(&session, steps).await?, "first\ncontentyes");
    if userland {
        let script = "cat a/link/file uploaded; stat -c '%a' a/b/file uploaded; readlink a/link;
            cat 'odd name'; echo $KEPT; wc -c < binary; echo two >> a/b/file; cat a/b/file";
        check_eq!(
            text(&session, script).await?,
            "one\ncontent640\n755\nb\nxyes\n1\none\ntwo\n"
        );
    }
    check_eq!(second.list_sessions()?.len(), 1);
    session.destroy().await?;
    check!(
        fixture.process()?.list_sessions()?.is_empty(),
        "it is still there"
    );
    Ok(())
}

pub(crate) async fn removed_files_stay_removed(fixture: Fixture) -> Done {
    let id = session_id("s")?;
    let sandbox = fixture.process()?;
    let config = fixture.config();
    let session = sandbox
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    let steps = [
        make_directory("d"),
        make_directory("e"),
        write("d/1", ""),
        write("d/2", ""),
        write("e/1", ""),
        write("file", ""),
        write("kept", ""),
        make_directory("deep/er"),
        write("deep/er/x", ""),
    ];
    fixture.output(&session, steps).await?;
    session.close().await?;
    let steps = [
        remove("file"),
        remove("d/1"),
        remove("e"),
        remove("deep"),
        make_directory("deep"),
        write("deep/new", ""),
        Step::Rename("kept".into(), "moved".into()),
    ];
    fixture.output(&session, steps).await?;
    session.close().await?;
    check_eq!(
        fixture.output(&session, [Step::List]).await?,
        "./d\n./d/2\n./deep\n./deep/new\n./moved\n"
    );
    let steps = [write("file", ""), make_directory("e"), write("e/2", "")];
    fixture.output(&session, steps).await?;
    session.close().await?;
    check_eq!(
        fixture.output(&session, [Step::List]).await?,
        "./d\n./d/2\n./deep\n./deep/new\n./e\n./e/2\n./file\n./moved\n"
    );
    Ok(())
}

pub(crate) async fn many_generations_stay_correct(fixture: Fixture) -> Done {
    let sandbox = fixture.process()?;
    let session = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    for round in 0..12 {
        let number = format!("{round}\n");
        let steps = [
            write("same", &number),
            write(&format!("file-{round}"), &number),
            remove(&format!("file-{}", round - 3)),
            make_directory("d"),
            Step::Append("d/log".into(), number),
        ];
        fixture.output(&session, steps).await?;
        session.close().await?;
    }
    let steps = [cat("same"), Step::List, cat("d/log")];
    let all: String = (0..12).map(|round| format!("{round}\n")).collect();
    check_eq!(
        fixture.output(&session, steps).await?,
        format!("11\n./d\n./d/log\n./file-10\n./file-11\n./file-9\n./same\n{all}")
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

pub(crate) async fn a_killed_instance_is_replaced(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let sandbox = fixture.process()?;
    let id = session_id("s")?;
    let config = fixture.config();
    let session = sandbox.create_session(&agent(), Some(id), config).await?;
    text(&session, "echo saved > file").await?;
    let running = session.start(sh("echo lost > other; sleep 60")).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    kill_process(instance_pid(&fixture, "s")?, Signal::KILL)?;
    let ended = tokio::time::timeout(Duration::from_secs(120), running.wait()).await;
    check!(
        ended.is_ok_and(|ended| ended.is_err()),
        "its end was not noticed"
    );
    check_eq!(text(&session, "cat file").await?, "saved\n");
    Ok(())
}

pub(crate) async fn one_process_at_a_time(fixture: Fixture) -> Done {
    let (first, second) = (fixture.process()?, fixture.process()?);
    let id = session_id("s")?;
    let config = fixture.config();
    let session = first
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    let running = session
        .start(fixture.program([Step::WaitFor("go".into()), print("end\n")]))
        .await?;
    check_eq!(
        second.session_status(&agent(), &id),
        SessionStatus::Executing
    );
    let (other, name) = (second.clone(), id.clone());
    let waiting = tokio::spawn(async move { other.open_session(&agent(), &name).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    check!(!waiting.is_finished(), "two processes have it open");
    session.upload("go", 0o644, &b""[..]).await?;
    check_eq!(running.wait().await?.outcome.stdout.bytes, b"end\n");
    session.close().await?;
    let mine = match waiting.await? {
        // On a slow machine the end took longer than it waits.
        Err(Error::SessionBusy { .. }) => second.open_session(&agent(), &id).await?,
        opened => opened?,
    };
    fixture.output(&mine, [print("mine now")]).await?;
    Ok(())
}

pub(crate) async fn destroy_from_another_process_wins(fixture: Fixture) -> Done {
    let (first, second) = (fixture.process()?, fixture.process()?);
    let id = session_id("s")?;
    let config = fixture.config();
    let session = first
        .create_session(&agent(), Some(id.clone()), config)
        .await?;
    let running = session.start(fixture.stubborn().await?).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    second.destroy_session(&agent(), &id).await?;
    check_eq!(
        second.session_status(&agent(), &id),
        SessionStatus::Destroyed
    );
    let ended = tokio::time::timeout(Duration::from_secs(120), running.wait()).await;
    let Ok(ended) = ended else {
        return Err(Stop::Failed("it runs on".into()));
    };
    check_eq!(ended?.outcome.killed, Some(KillReason::Destroyed));
    until("noticed", || session.status() == SessionStatus::Destroyed).await?;
    check!(
        session
            .start(fixture.program([Step::Exit(0)]))
            .await
            .is_err(),
        "it can still be used"
    );
    second
        .create_session(&agent(), Some(id), fixture.config())
        .await?;
    Ok(())
}

pub(crate) async fn a_full_session_stays_within_its_limit(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    fixture.needs(Control::Disk).await?;
    let sandbox = fixture.process()?;
    let mut config = fixture.config();
    config.limits.disk_bytes = fixture.limit(Control::Disk, 16 * MIB).await?;
    let session = sandbox.create_session(&agent(), None, config).await?;
    let fill = |name: &str| sh(&format!("head -c 9000000 /dev/urandom > {name}"));
    check!(
        run(&session, fill("a")).await?.outcome.success(),
        "control: it fits once"
    );
    session.close().await?;
    check!(
        !run(&session, fill("b")).await?.outcome.success(),
        "it fits twice"
    );
    text(&session, "rm a b").await?;
    Ok(())
}
