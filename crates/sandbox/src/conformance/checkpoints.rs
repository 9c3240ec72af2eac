use std::fs;
use std::path::Path;

use super::fixture::{
    Done, Fixture, agent, check, check_eq, checkpoint, find_in_layers, session_id, sh, text,
};
use crate::{Error, Session};

const LIST: &str = "find . -mindepth 1 | sort | tr '\\n' ' '";

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

pub async fn a_state_is_saved_and_restored(fixture: Fixture) -> Done {
    let (one, two) = (checkpoint("one")?, checkpoint("two")?);
    for session in both(&fixture).await? {
        text(
            &session,
            "mkdir -p d/e; echo 1 > d/a; echo 1 > d/e/b; echo 1 > file",
        )
        .await?;
        let saved = session.save_state(&one).await?;
        check_eq!(session.checkpoints()?, [saved]);
        text(
            &session,
            "rm -r d; mkdir d; echo 2 > d/new; rm file; echo 2 > other",
        )
        .await?;
        session.save_state(&two).await?;
        for round in 0..2 {
            session.restore_state(&one).await?;
            check_eq!(
                text(&session, LIST).await?,
                "./d ./d/a ./d/e ./d/e/b ./file "
            );
            check_eq!(text(&session, "cat d/a d/e/b file").await?, "1\n1\n1\n");
            text(&session, &format!("rm -r d/e; echo changed-{round} > file")).await?;
            session.restore_state(&two).await?;
            check_eq!(text(&session, LIST).await?, "./d ./d/new ./other ");
        }
        // On top of restored layers, what is removed and made again is saved as it is.
        session.restore_state(&one).await?;
        text(&session, "rm -r d; mkdir d; echo 3 > d/a; rm file").await?;
        let three = checkpoint("three")?;
        session.save_state(&three).await?;
        session.restore_state(&two).await?;
        session.restore_state(&three).await?;
        check_eq!(text(&session, LIST).await?, "./d ./d/a ");
        check_eq!(text(&session, "cat d/a").await?, "3\n");
        let taken = session.save_state(&one).await;
        check!(
            matches!(taken, Err(Error::CheckpointExists { .. })),
            "{taken:?}"
        );
        session.destroy().await?;
    }
    Ok(())
}

pub async fn a_fork_stands_alone(fixture: Fixture) -> Done {
    let name = checkpoint("base")?;
    for session in both(&fixture).await? {
        text(&session, "echo base > file; echo base > kept").await?;
        session.save_state(&name).await?;
        text(&session, "echo original > file").await?;
        let fork = session.fork(&name, Some(session_id("fork")?)).await?;
        check_eq!(text(&fork, "cat file").await?, "base\n");
        text(&fork, "echo fork > file; rm kept").await?;
        let second = session.fork(&name, None).await?;
        check_eq!(text(&second, "cat file kept").await?, "base\nbase\n");
        check_eq!(text(&session, "cat file kept").await?, "original\nbase\n");
        let missing = session.fork(&checkpoint("missing")?, None).await;
        check!(
            matches!(missing, Err(Error::NoCheckpoint(_))),
            "{missing:?}"
        );
        session.destroy().await?;
        check_eq!(text(&fork, "cat file; ls").await?, "fork\nfile\n");
        fork.close().await?;
        check_eq!(text(&fork, "cat file; ls").await?, "fork\nfile\n");
    }
    Ok(())
}

pub async fn a_state_can_be_deleted(fixture: Fixture) -> Done {
    let sandbox = fixture.process()?;
    let session = sandbox
        .create_session(&agent(), None, fixture.config())
        .await?;
    let (one, two) = (checkpoint("one")?, checkpoint("two")?);
    text(&session, "echo 1 > only-in-one").await?;
    session.save_state(&one).await?;
    text(&session, "rm only-in-one; echo 2 > file").await?;
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
    check_eq!(text(&session, "ls").await?, "file\n");
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

pub async fn a_changed_state_is_refused(fixture: Fixture) -> Done {
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

pub async fn nothing_is_saved_while_something_runs(fixture: Fixture) -> Done {
    let name = checkpoint("c")?;
    for session in both(&fixture).await? {
        session.save_state(&checkpoint("empty")?).await?;
        let running = session.start(sh("sleep 60")).await?;
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

pub async fn special_files_are_left_out(fixture: Fixture) -> Done {
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
