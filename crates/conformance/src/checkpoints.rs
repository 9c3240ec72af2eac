use std::fs;
use std::path::Path;

use brig_sandbox::{Control, Error, Session};

use super::fixture::{
    Done, Fixture, agent, check, check_eq, checkpoint, find_in_layers, session_id, skip, text,
};
use super::program::{Step, cat, make_directory, remove, write};

async fn both(fixture: &Fixture) -> Done<[Session; 2]> {
    let config = fixture.config();
    Ok([
        fixture
            .sandbox()?
            .create_session(&agent(), None, config.clone())
            .await?,
        fixture
            .process()?
            .create_session(&agent(), None, config)
            .await?,
    ])
}

pub(crate) async fn a_state_is_saved_and_restored(fixture: Fixture) -> Done {
    let (one, two) = (checkpoint("one")?, checkpoint("two")?);
    for session in both(&fixture).await? {
        let steps = [
            make_directory("d/e"),
            write("d/a", "1\n"),
            write("d/e/b", "1\n"),
            write("file", "1\n"),
        ];
        fixture.output(&session, steps).await?;
        let saved = session.save_state(&one).await?;
        check_eq!(session.checkpoints()?, [saved]);
        let steps = [
            remove("d"),
            make_directory("d"),
            write("d/new", "2\n"),
            remove("file"),
            write("other", "2\n"),
        ];
        fixture.output(&session, steps).await?;
        session.save_state(&two).await?;
        for round in 0..2 {
            session.restore_state(&one).await?;
            check_eq!(
                fixture.output(&session, [Step::List]).await?,
                "./d\n./d/a\n./d/e\n./d/e/b\n./file\n"
            );
            let contents = [cat("d/a"), cat("d/e/b"), cat("file")];
            check_eq!(fixture.output(&session, contents).await?, "1\n1\n1\n");
            let steps = [remove("d/e"), write("file", &format!("changed-{round}"))];
            fixture.output(&session, steps).await?;
            session.restore_state(&two).await?;
            check_eq!(
                fixture.output(&session, [Step::List]).await?,
                "./d\n./d/new\n./other\n"
            );
        }
        // On top of restored files, what is removed and made again is saved as it is.
        session.restore_state(&one).await?;
        let steps = [
            remove("d"),
            make_directory("d"),
            write("d/a", "3\n"),
            remove("file"),
        ];
        fixture.output(&session, steps).await?;
        let three = checkpoint("three")?;
        session.save_state(&three).await?;
        session.restore_state(&two).await?;
        session.restore_state(&three).await?;
        check_eq!(
            fixture.output(&session, [Step::List]).await?,
            "./d\n./d/a\n"
        );
        check_eq!(fixture.output(&session, [cat("d/a")]).await?, "3\n");
        let taken = session.save_state(&one).await;
        check!(
            matches!(taken, Err(Error::CheckpointExists { .. })),
            "{taken:?}"
        );
        session.destroy().await?;
    }
    Ok(())
}

pub(crate) async fn a_fork_stands_alone(fixture: Fixture) -> Done {
    let name = checkpoint("base")?;
    for session in both(&fixture).await? {
        let base = [write("file", "base\n"), write("kept", "base\n")];
        fixture.output(&session, base).await?;
        session.save_state(&name).await?;
        let original = [write("file", "original\n")];
        fixture.output(&session, original).await?;
        let fork = session.fork(&name, Some(session_id("fork")?)).await?;
        check_eq!(fixture.output(&fork, [cat("file")]).await?, "base\n");
        fixture
            .output(&fork, [write("file", "fork\n"), remove("kept")])
            .await?;
        let second = session.fork(&name, None).await?;
        let files = [cat("file"), cat("kept")];
        check_eq!(fixture.output(&second, &files).await?, "base\nbase\n");
        check_eq!(fixture.output(&session, &files).await?, "original\nbase\n");
        let missing = session.fork(&checkpoint("missing")?, None).await;
        check!(
            matches!(missing, Err(Error::NoCheckpoint(_))),
            "{missing:?}"
        );
        session.destroy().await?;
        let left = [cat("file"), Step::List];
        check_eq!(fixture.output(&fork, &left).await?, "fork\n./file\n");
        fork.close().await?;
        check_eq!(fixture.output(&fork, &left).await?, "fork\n./file\n");
    }
    Ok(())
}

pub(crate) async fn a_state_can_be_deleted(fixture: Fixture) -> Done {
    let sandbox = fixture.process()?;
    let session = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    let (one, two) = (checkpoint("one")?, checkpoint("two")?);
    fixture
        .output(&session, [write("only-in-one", "1\n")])
        .await?;
    session.save_state(&one).await?;
    let steps = [remove("only-in-one"), write("file", "2\n")];
    fixture.output(&session, steps).await?;
    session.save_state(&two).await?;
    session.delete_checkpoint(&one).await?;
    let missing = session.restore_state(&one).await;
    check!(
        matches!(missing, Err(Error::NoCheckpoint(_))),
        "{missing:?}"
    );
    let missing = session.delete_checkpoint(&one).await;
    check!(
        matches!(missing, Err(Error::NoCheckpoint(_))),
        "{missing:?}"
    );
    check!(
        find_in_layers(&fixture.state(), "only-in-one").is_none(),
        "its files are still there"
    );
    session.restore_state(&two).await?;
    check_eq!(fixture.output(&session, [Step::List]).await?, "./file\n");
    session.destroy().await?;
    check!(
        find_in_layers(&fixture.state(), "file").is_none(),
        "its files are still there"
    );
    Ok(())
}

fn replace(path: &Path, text: &str) -> Done {
    // The file may be shared with the session's own folder, which must not change with it.
    fs::remove_file(path)?;
    fs::write(path, text)?;
    Ok(())
}

pub(crate) async fn a_changed_state_is_refused(fixture: Fixture) -> Done {
    if !fixture.saves_directories().await? {
        return skip("the backend keeps saved files itself, where this case cannot change them");
    }
    fixture.needs(Control::LinuxUserland).await?;
    let sandbox = fixture.process()?;
    let session = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    let name = checkpoint("c")?;
    text(&session, "echo original > file; chmod 644 file").await?;
    session.save_state(&name).await?;
    text(&session, "echo newer > file").await?;
    let Some(file) = find_in_layers(&fixture.state(), "file") else {
        check!(false, "there is no saved file");
        return Ok(());
    };
    let kept = file.with_file_name("kept-aside");
    fs::rename(&file, &kept)?;
    fs::write(&file, "tampered\n")?;
    let changes: [fn(&Path, &Path) -> Done; 3] = [
        |file, _| replace(file, "0riginal\n"),
        |_, layer| Ok(fs::write(layer.join("added"), "")?),
        |file, _| Ok(fs::remove_file(file)?),
    ];
    let layer = file.parent().unwrap_or(&file);
    for (index, change) in changes.into_iter().enumerate() {
        fs::write(&file, "original\n")?;
        change(&file, layer)?;
        for refused in [
            session.restore_state(&name).await,
            session.fork(&name, None).await.map(|_| ()),
        ] {
            check!(
                matches!(refused, Err(Error::CheckpointTampered { .. })),
                "{index}: {refused:?}"
            );
        }
        let _ = fs::remove_file(layer.join("added"));
        check_eq!(text(&session, "cat file").await?, "newer\n");
    }
    fs::rename(&kept, &file)?;
    session.restore_state(&name).await?;
    check_eq!(text(&session, "cat file").await?, "original\n");
    Ok(())
}

pub(crate) async fn nothing_is_saved_while_something_runs(fixture: Fixture) -> Done {
    let name = checkpoint("c")?;
    for session in both(&fixture).await? {
        session.save_state(&checkpoint("empty")?).await?;
        let running = session
            .start(fixture.program([Step::SleepMs(60_000)]))
            .await?;
        for refused in [
            session.save_state(&name).await.map(|_| ()),
            session.restore_state(&checkpoint("empty")?).await,
            session.close().await,
        ] {
            check!(
                matches!(refused, Err(Error::SessionBusy { .. })),
                "{refused:?}"
            );
        }
        running.cancel();
        running.wait().await?;
        session.save_state(&name).await?;
    }
    Ok(())
}

pub(crate) async fn special_files_are_left_out(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    if !fixture.saves_directories().await? {
        return skip("the backend keeps saved files itself");
    }
    let name = checkpoint("c")?;
    for session in both(&fixture).await? {
        let script = "mkfifo pipe; echo x > set-id; chmod 4755 set-id; echo closed > closed;
            chmod 000 closed; mkdir shut; echo deep > shut/file; chmod 000 shut;
            truncate -s 200M huge; ln -s /etc/passwd link";
        text(&session, script).await?;
        session.save_state(&name).await?;
        text(&session, "rm -f set-id closed huge link; chmod 700 shut").await?;
        session.restore_state(&name).await?;
        let script = "cat closed shut/file; stat -c %a set-id; stat -c %s huge; readlink link; ls";
        check_eq!(
            text(&session, script).await?,
            "closed\ndeep\n755\n209715200\n/etc/passwd\nclosed\nhuge\nlink\nset-id\nshut\n"
        );
        session.destroy().await?;
    }
    Ok(())
}
