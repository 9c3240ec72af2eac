//! File names that hurt those who print, split or trust them (attack 10).

use brig_sandbox::{Session, SessionConfig};

use crate::target::AttackTarget;

#[macro_export]
macro_rules! names {
    ($target:path) => {
        $crate::attacks!($target, names:
            strange_names_are_kept_intact,
            names_that_leave_the_workspace_are_refused,
            names_that_are_not_text_are_listed_intact,
        );
    };
}

/// Names that are unusual but legal: stored as they are, byte by byte.
pub async fn strange_names_are_kept_intact(target: &AttackTarget) {
    let session = target.session(SessionConfig::default()).await;
    let longest = "n".repeat(255);
    let names = [
        "plain",
        "with space",
        "new\nline",
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "..%2fetc",
        "%2e%2e%2fetc",
        "-rf",
        "--",
        "*",
        "$(id)",
        "`id`",
        "a;b",
        "'",
        "\"",
        "\\",
        "...",
        " ",
        "~",
        "tab\there",
        "\u{202e}gpj.exe",
        "fullwidth\u{ff0f}slash",
        "CON",
        ".hidden",
        &longest,
    ];
    for name in names {
        session
            .upload(name, 0o644, &mut name.as_bytes())
            .await
            .unwrap_or_else(|error| {
                panic!("`{}` is a legal name: {error}", name.escape_debug());
            });
        assert_eq!(
            download(&session, name).await.as_deref(),
            Some(name.as_bytes())
        );
    }
    let mut listed: Vec<Vec<u8>> = session
        .list_files(".")
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.raw)
        .collect();
    let mut expected: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    session.destroy().await.unwrap();
}

/// Names that would lead elsewhere, or are none.
pub async fn names_that_leave_the_workspace_are_refused(target: &AttackTarget) {
    let session = target.session(SessionConfig::default()).await;
    session
        .upload("d/inside", 0o644, &mut &b"x"[..])
        .await
        .unwrap();
    let too_long = "n".repeat(256);
    let too_deep = "d/".repeat(3000) + "f";
    for name in [
        "../escaped",
        "d/../../escaped",
        "/etc/escaped",
        "/tmp/escaped",
        "d/../../tmp/escaped",
        "",
        "nul\0byte",
        ".",
        "..",
        "/",
        "./../escaped",
        "d/./../../escaped",
        &too_long,
        &too_deep,
    ] {
        let shown = name.escape_debug().to_string();
        let put = session.upload(name, 0o644, &mut &b"escaped"[..]).await;
        let error = put.expect_err(&format!("`{shown}` was written"));
        let message = error.to_string();
        assert!(
            !message.contains(['\n', '\x1b', '\0']),
            "the message is not escaped: {message:?}"
        );
        assert!(
            session.download(name, &mut Vec::new()).await.is_err(),
            "`{shown}` was read"
        );
    }
    let found = "find / -xdev -name escaped 2>/dev/null; find /tmp /workspace -name escaped";
    let report = session
        .run(vec!["sh".into(), "-c".into(), found.into()])
        .await
        .unwrap();
    assert_eq!(report.outcome.stdout.bytes, b"");
    assert_eq!(
        download(&session, "d/inside").await.as_deref(),
        Some(&b"x"[..])
    );
    session.destroy().await.unwrap();
}

/// Names made by the code itself, which need not be text.
pub async fn names_that_are_not_text_are_listed_intact(target: &AttackTarget) {
    let session = target.session(SessionConfig::default()).await;
    let make = "import os\nfor n in (b'\\xff\\xfe', b'half\\xc3', b'a\\nb', b'\\x1b[2J'):\n    open(n, 'w').close()\n";
    let made = session
        .execute_code(brig_sandbox::Language::Python, make)
        .await
        .unwrap();
    assert!(made.outcome.success());
    let list = session.list_files(".").await.unwrap();
    let mut raw: Vec<&[u8]> = list.iter().map(|entry| entry.raw.as_slice()).collect();
    raw.sort();
    assert_eq!(raw, [&b"\x1b[2J"[..], b"a\nb", b"half\xc3", b"\xff\xfe"]);
    let shown = list.iter().find(|entry| entry.raw == b"\xff\xfe").unwrap();
    assert_eq!(shown.name, "\u{fffd}\u{fffd}");
    session.destroy().await.unwrap();
}

async fn download(session: &Session, path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    session.download(path, &mut bytes).await.ok().map(|_| bytes)
}
