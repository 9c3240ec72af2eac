use std::time::Duration;

use brig_sandbox::backend::FileKind;
use brig_sandbox::config::MIB;
use brig_sandbox::{Control, Error, Session};

use super::fixture::{Done, Fixture, check, check_eq, text};
use super::program::{cat, make_directory, remove};

async fn read(session: &Session, path: &str) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    session.download(path, &mut content).await?;
    Ok(content)
}

fn is_refused<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::File { .. }))
}

pub(crate) async fn what_goes_in_comes_out(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let content: Vec<u8> = (0..=255).cycle().take(70_001).collect();
    check_eq!(
        session.upload("file", 0o640, content.as_slice()).await?,
        70_001
    );
    let listed = session.list_files(".").await?;
    check_eq!((listed[0].mode & 0o777, listed[0].size), (0o640, 70_001));
    let userland = fixture.has(Control::LinuxUserland).await?;
    if userland {
        check_eq!(
            text(&session, "stat -c '%a %s' file; wc -c < file").await?,
            "640 70001\n70001\n"
        );
    }
    check_eq!(read(&session, "file").await?, content);
    check_eq!(
        session
            .upload(
                "/workspace/deep/er/file",
                0o755,
                &b"#!/bin/sh\necho ran"[..]
            )
            .await?,
        18
    );
    check_eq!(
        fixture.output(&session, [cat("deep/er/file")]).await?,
        "#!/bin/sh\necho ran"
    );
    if userland {
        check_eq!(text(&session, "deep/er/file").await?, "ran\n");
    }
    session.upload("file", 0o644, &b"short"[..]).await?;
    check_eq!(read(&session, "file").await?, b"short");
    check_eq!(session.upload("empty", 0o644, &b""[..]).await?, 0);
    check_eq!(read(&session, "empty").await?, b"");
    check!(
        is_refused(&read(&session, "missing").await),
        "there is no such file"
    );
    Ok(())
}

pub(crate) async fn a_large_file_goes_in_and_out(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let content: Vec<u8> = (0..20_000_000_u32).map(|i| (i % 251) as u8).collect();
    session.upload("large", 0o644, content.as_slice()).await?;
    check_eq!(session.list_files(".").await?[0].size, 20_000_000);
    if fixture.has(Control::LinuxUserland).await? {
        check_eq!(text(&session, "wc -c < large").await?, "20000000\n");
    }
    check!(
        read(&session, "large").await? == content,
        "it came out different"
    );
    Ok(())
}

pub(crate) async fn folders_are_listed(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    check!(
        session.list_files(".").await?.is_empty(),
        "it is empty at first"
    );
    text(
        &session,
        "mkdir folder; printf 12345 > file; ln -s file link; mkfifo pipe",
    )
    .await?;
    let mut entries = session.list_files("/workspace").await?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let found: Vec<(&str, FileKind)> = entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind))
        .collect();
    let expected = [
        ("file", FileKind::File),
        ("folder", FileKind::Directory),
        ("link", FileKind::Link),
        ("pipe", FileKind::Other),
    ];
    check_eq!(found, expected);
    check_eq!(entries[0].size, 5);
    check!(
        is_refused(&session.list_files("file").await),
        "a file is not a folder"
    );
    check!(
        is_refused(&session.list_files("missing").await),
        "there is no such folder"
    );
    text(
        &session,
        "cd folder; for i in $(seq 3000); do : > a-rather-long-name-$i; done",
    )
    .await?;
    check_eq!(session.list_files("folder").await?.len(), 3000);
    Ok(())
}

pub(crate) async fn odd_names_are_names(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    let long = "n".repeat(255);
    for name in [
        " ",
        "-rf",
        "a\nb",
        "caf\u{e9}",
        "$(x)",
        "..a",
        "...",
        "*",
        long.as_str(),
    ] {
        session.upload(name, 0o644, name.as_bytes()).await?;
        check_eq!(read(&session, name).await?, name.as_bytes());
    }
    check_eq!(session.list_files(".").await?.len(), 9);
    if !fixture.has(Control::LinuxUserland).await? {
        return Ok(());
    }
    text(
        &session,
        r"rm -rf -- ..a ... * ' '; printf x > $(printf '\377\376')",
    )
    .await?;
    let entries = session.list_files(".").await?;
    check_eq!(entries.len(), 1);
    check_eq!(entries[0].raw, [0xff, 0xfe]);
    Ok(())
}

pub(crate) async fn links_are_not_followed(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    let script =
        "echo inside > file; mkdir folder; ln -s file to-file; ln -s /etc/passwd to-passwd;
        ln -s folder to-folder; ln -s / to-root; ln -s missing dangling; ln -s /etc to-etc";
    text(&session, script).await?;
    for path in [
        "to-file",
        "to-passwd",
        "to-root/etc/passwd",
        "to-etc/passwd",
        "dangling",
    ] {
        let result = read(&session, path).await;
        check!(is_refused(&result), "{path} was read: {result:?}");
    }
    for path in ["to-folder/new", "to-root/tmp/new", "to-etc/new"] {
        let result = session.upload(path, 0o644, &b"x"[..]).await;
        check!(is_refused(&result), "{path} was written: {result:?}");
    }
    for path in ["to-folder", "to-root", "to-root/etc", "to-etc"] {
        check!(
            is_refused(&session.list_files(path).await),
            "{path} was listed"
        );
    }
    // Writing to a name that is a link may replace the link, but never what it leads to.
    for path in ["to-file", "dangling"] {
        let _ = session.upload(path, 0o644, &b"new"[..]).await;
    }
    check_eq!(
        text(
            &session,
            "cat file; ls folder; test ! -e missing && echo no"
        )
        .await?,
        "inside\nno\n"
    );
    Ok(())
}

pub(crate) async fn a_pipe_does_not_block(fixture: Fixture) -> Done {
    fixture.needs(Control::LinuxUserland).await?;
    let session = fixture.session().await?;
    text(&session, "mkfifo pipe; mkdir folder").await?;
    let limit = Duration::from_secs(120);
    for path in ["pipe", "folder", "."] {
        let result = tokio::time::timeout(limit, read(&session, path)).await;
        check!(result.as_ref().is_ok_and(is_refused), "{path}: {result:?}");
    }
    let result = tokio::time::timeout(limit, session.upload("pipe", 0o644, &b"x"[..])).await;
    check!(result.is_ok(), "it waits for a reader");
    Ok(())
}

pub(crate) async fn paths_stay_in_the_workspace(fixture: Fixture) -> Done {
    let session = fixture.session().await?;
    fixture.output(&session, [make_directory("a")]).await?;
    for path in [
        "",
        "/etc/passwd",
        "..",
        "../etc/passwd",
        "a/../../etc/passwd",
        "/",
        "a\0b",
    ] {
        check!(is_refused(&read(&session, path).await), "{path:?} was read");
        let written = session.upload(path, 0o644, &b"x"[..]).await;
        check!(is_refused(&written), "{path:?} was written");
        check!(
            is_refused(&session.list_files(path).await),
            "{path:?} was listed"
        );
    }
    Ok(())
}

pub(crate) async fn more_than_the_disk_is_refused(fixture: Fixture) -> Done {
    let mut config = fixture.config();
    config.limits.disk_bytes = fixture.limit(Control::Disk, 4 * MIB).await?;
    let session = fixture.session_with(config).await?;
    let content = vec![1; 12 << 20];
    let limit = Duration::from_secs(120);
    let result = tokio::time::timeout(limit, session.upload("f", 0o644, content.as_slice())).await;
    check!(result.as_ref().is_ok_and(is_refused), "{result:?}");
    fixture.output(&session, [remove("f")]).await?;
    session.upload("f", 0o644, &content[..1 << 20]).await?;
    Ok(())
}
