use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use brig_guest_host::commands::Denied;

use super::*;

fn paths(all: &[&str]) -> BTreeSet<PathBuf> {
    all.iter().map(PathBuf::from).collect()
}

fn denied(all: &[&str]) -> BTreeMap<PathBuf, Denied> {
    let denied = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let rule = name.as_str().into();
        (PathBuf::from(path), Denied { rule, name })
    };
    all.iter().map(denied).collect()
}

fn deny_curl() -> Scan {
    Scan {
        denied: denied(&["/usr/bin/curl", "/opt/a b/[x]{1},y*?^"]),
        names: BTreeMap::from([("curl".to_owned(), "curl".into())]),
        allowed: None,
    }
}

fn allow_python() -> Scan {
    Scan {
        denied: denied(&["/usr/bin/curl"]),
        names: BTreeMap::default(),
        allowed: Some(Allowed {
            programs: paths(&[
                "/usr/bin/python3.11",
                "/usr/bin/[",
                "/usr/bin/tool",
                "/tmp/mine",
                "/tmpx/other",
                "/usr/bin/odd\n\" ix, /** ix, \"",
            ]),
            interpreters: paths(&["/usr/bin/perl"]),
            requested_scripts: Vec::new(),
            loaders: paths(&["/usr/lib64/ld-linux-x86-64.so.2"]),
            missing: Vec::new(),
            without_shell: vec![("/usr/bin/tool".into(), "/usr/bin/dash".into())],
        }),
    }
}

fn places() -> Vec<String> {
    ["/", "/workspace", "/tmp"].map(str::to_owned).into()
}

fn has(profile: &Profile, rule: &str) -> bool {
    profile.text.lines().any(|line| line.trim() == rule)
}

#[test]
fn what_is_denied_can_be_neither_started_nor_read() {
    let profile = Profile::of(&deny_curl(), &[], &places());
    for rule in [
        "file,",
        "deny \"/usr/bin/curl\" rwklmx,",
        r#"deny "/opt/a b/\[x\]\{1\}\,y\*\?\^" rwklmx,"#,
        "deny \"/tmp/{,**/}curl\" mx,",
        "deny \"/workspace/{,**/}curl\" mx,",
        "deny mount,",
        "deny /proc/sysrq-trigger rwklx,",
    ] {
        assert!(has(&profile, rule), "{rule}: {}", profile.text);
    }
    assert!(!profile.text.contains("\"//"), "{}", profile.text);
}

#[test]
fn a_stand_in_starts_to_say_what_it_is() {
    let profile = Profile::of(&deny_curl(), &["/usr/bin/curl".into()], &places());
    assert!(
        !profile.text.contains("\"/usr/bin/curl\""),
        "{}",
        profile.text
    );
    let profile = Profile::of(&allow_python(), &["/usr/bin/curl".into()], &places());
    assert!(has(&profile, "\"/usr/bin/curl\" mrix,"), "{}", profile.text);
}

#[test]
fn an_allowlist_lets_nothing_else_start() {
    let profile = Profile::of(&allow_python(), &[], &places());
    let mut started: Vec<&str> = profile
        .text
        .lines()
        .map(str::trim)
        .filter(|line| line.ends_with(" mrix,") || *line == "file,")
        .collect();
    started.sort_unstable();
    let expected = [
        "\"/tmpx/other\" mrix,",
        "\"/usr/bin/\\[\" mrix,",
        "\"/usr/bin/perl\" mrix,",
        "\"/usr/bin/python3.11\" mrix,",
    ];
    assert_eq!(started, expected, "{}", profile.text);
    assert!(has(&profile, "\"/.brig/guest\" mr,"));
    assert!(has(&profile, "\"/usr/lib64/ld-linux-x86-64.so.2\" mr,"));
    assert!(has(&profile, "deny \"/usr/bin/**\" wl,"));
    assert!(has(&profile, "deny \"/usr/bin/curl\" rwklmx,"));
}

#[test]
fn equal_lists_have_one_name() {
    let one = Profile::of(&deny_curl(), &[], &places());
    assert_eq!(one, Profile::of(&deny_curl(), &[], &places()));
    assert_ne!(one.name, Profile::of(&deny_curl(), &[], &[]).name);
    assert_ne!(one.name, Profile::of(&allow_python(), &[], &places()).name);
    assert_eq!(one.name.len(), PREFIX.len() + 32);
}

#[test]
fn the_parser_takes_it() {
    const PARSER: &str = "/usr/sbin/apparmor_parser";
    if !Path::new(PARSER).exists() {
        brig_testing::skip(
            "the_parser_takes_it",
            "the package apparmor is not installed",
        );
        return;
    }
    let takes = |text: &str| {
        let mut child = Command::new(PARSER)
            .args(["--skip-kernel-load", "--skip-cache", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the parser starts");
        let mut input = child.stdin.take().expect("its input");
        input.write_all(text.as_bytes()).expect("it reads");
        drop(input);
        child.wait_with_output().expect("it ends")
    };
    let mut odd = deny_curl();
    let names = [
        "a,b",
        "x\u{e4}\n",
        "\"",
        "\\",
        "@{HOME}",
        "#include <x>",
        "$",
    ];
    for name in names {
        odd.names.insert(name.to_owned(), name.into());
        odd.denied.extend(denied(&[&format!("/usr/bin/{name}")]));
    }
    for scan in [deny_curl(), allow_python(), odd] {
        let profile = Profile::of(&scan, &[], &places());
        let said = takes(&profile.text);
        let words = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{words}\n{}", profile.text);
    }
    assert!(!takes("profile x { no such rule, }").status.success());
}
