use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use brig_policy::{Compat, Document, PolicySet};
use tempfile::TempDir;

use super::{Root, Scan, memory, scan};

const PATH: [&str; 2] = ["/usr/bin", "/bin"];

/// A root with a program at each of these places.
fn root(files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in files {
        let path = folder.path().join(file.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("above")).expect("made");
        fs::write(path, "text").expect("written");
    }
    folder
}

fn look(folder: &Path, policy: &str) -> Arc<Scan> {
    let document = Document::load("p.yaml", policy, Compat::Strict).expect("valid");
    let policies = PolicySet::new(vec![document.document]);
    let root = Root::open(folder, PATH, None).expect("a root");
    scan(policies.commands(), &root)
}

fn denied(scan: &Scan) -> Vec<&str> {
    let paths = scan.denied.keys();
    paths.map(|path| path.to_str().expect("text")).collect()
}

#[test]
fn a_denied_file_is_found_behind_links_alternatives_and_hard_links() {
    let folder = root(&["/usr/bin/nc.openbsd", "/usr/bin/ls", "/usr/share/doc/x"]);
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("etc/alternatives")).expect("made");
    symlink("/usr/bin", at("bin")).expect("linked");
    symlink("/etc/alternatives/nc", at("usr/bin/nc")).expect("linked");
    symlink("/bin/nc.openbsd", at("etc/alternatives/nc")).expect("linked");
    let real = at("usr/bin/nc.openbsd");
    for other in ["usr/bin/harmless", "usr/share/doc/hidden"] {
        fs::hard_link(&real, at(other)).expect("linked");
    }
    let found = look(folder.path(), "command_denylist: [nc, az]\n");
    let expected = [
        "/usr/bin/harmless",
        "/usr/bin/nc.openbsd",
        "/usr/share/doc/hidden",
    ];
    assert_eq!(denied(&found), expected);
    let names: Vec<&String> = found.names.keys().collect();
    assert_eq!(names, ["az", "nc"], "also what is not installed");
    assert_eq!(found.allowed, None);
}

#[test]
fn a_program_that_can_be_a_denied_one_is_denied() {
    let folder = root(&["/bin/busybox", "/bin/ls"]);
    let found = look(folder.path(), "command_denylist: [wget]\n");
    assert_eq!(denied(&found), ["/bin/busybox"]);
    let found = look(folder.path(), "command_denylist: [terraform]\n");
    assert_eq!(denied(&found), Vec::<&str>::new());
}

#[test]
fn a_link_does_not_lead_out_of_the_root() {
    let folder = root(&["/usr/bin/ls"]);
    let outside = folder.path().join("usr/bin/curl");
    symlink("../../../../../../../../../../usr/bin/env", outside).expect("linked");
    let found = look(folder.path(), "command_denylist: [curl, /opt/tool]\n");
    assert_eq!(
        denied(&found),
        ["/opt/tool"],
        "a path counts wherever it leads"
    );
}

#[test]
fn what_is_only_observed_is_not_looked_for() {
    let folder = root(&["/usr/bin/curl", "/usr/bin/git"]);
    let list = "command_denylist: [curl, git push]\n";
    let found = look(folder.path(), &format!("{list}command_mode: observe\n"));
    assert_eq!(*found, Scan::default());
    assert_eq!(denied(&look(folder.path(), list)), ["/usr/bin/curl"]);
}

#[test]
fn an_allowlist_gives_what_its_programs_need_to_start_and_no_shell() {
    let folder = root(&[
        "/bin/sh",
        "/bin/perl",
        "/usr/bin/env",
        "/usr/bin/python3.9",
        "/bin/curl",
    ]);
    let at = |path: &str| folder.path().join(path);
    symlink("python3.9", at("usr/bin/python3")).expect("linked");
    for (name, text) in [
        ("by-perl", "#!/bin/perl\n"),
        ("by-env", "#!/usr/bin/env python3\n"),
        ("by-shell", "#!/bin/sh\n"),
    ] {
        fs::write(at("usr/bin").join(name), text).expect("written");
    }
    let list = "command_allowlist: [by-perl, by-env, by-shell, curl, nothing, '@compilers']\n";
    let found = look(folder.path(), &format!("{list}command_denylist: [curl]\n"));
    let allowed = found.allowed.as_ref().expect("a list");
    let texts = |paths: &std::collections::BTreeSet<std::path::PathBuf>| -> Vec<String> {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    };
    let programs = ["/usr/bin/by-env", "/usr/bin/by-perl", "/usr/bin/by-shell"];
    assert_eq!(texts(&allowed.programs), programs);
    let interpreters = ["/bin/perl", "/usr/bin/env", "/usr/bin/python3.9"];
    assert_eq!(texts(&allowed.interpreters), interpreters);
    assert_eq!(allowed.missing, ["nothing"]);
    let without = [("/usr/bin/by-shell".into(), "/bin/sh".into())];
    assert_eq!(allowed.without_shell, without);
    assert!(!allowed.has(Path::new("/bin/sh")));
    // They are there for their scripts alone.
    let python = Path::new("/usr/bin/python3.9");
    assert!(allowed.only_interprets(python));
    assert!(!allowed.only_interprets(Path::new("/usr/bin/by-env")));
    let told = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        allowed
            .requested_scripts(python, &words)
            .map(|(at, path)| (at, path.to_owned()))
            .collect::<Vec<_>>()
    };
    let script = (1, "/usr/bin/by-env".into());
    assert_eq!(told(&["python3", "/usr/bin/by-env", "x"]), [script]);
    assert!(told(&["python", "-c", "x"]).is_empty());
}

#[test]
fn what_changes_is_looked_at_again() {
    let folder = root(&["/usr/bin/ls"]);
    let list = "command_denylist: [curl]\n";
    assert_eq!(denied(&look(folder.path(), list)), Vec::<&str>::new());
    fs::write(folder.path().join("usr/bin/curl"), "text").expect("written");
    assert_eq!(denied(&look(folder.path(), list)), ["/usr/bin/curl"]);
}

/// What is found by what an earlier process has left, and whether it had to look.
fn next_process(folder: &Path, kept: &Path, now: i64) -> (Vec<String>, bool) {
    memory::forget();
    let policy = "command_denylist: [nc, az]\n";
    let document = Document::load("p.yaml", policy, Compat::Strict).expect("valid");
    let policies = PolicySet::new(vec![document.document]);
    let root = Root::open(folder, PATH, None).expect("a root");
    let root = root.kept_in(Some(kept.to_owned()));
    let mut looked = false;
    let found = memory::recall_at(now, policies.commands(), &root, || {
        looked = true;
        super::scan::look(policies.commands(), &root)
    });
    (
        denied(&found).into_iter().map(str::to_owned).collect(),
        looked,
    )
}

#[test]
fn what_an_earlier_process_found_counts_until_anything_changes() {
    let folder = root(&["/usr/bin/nc.openbsd", "/usr/bin/nc.old", "/usr/share/x"]);
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("etc/alternatives")).expect("made");
    symlink("/etc/alternatives/nc", at("usr/bin/nc")).expect("linked");
    symlink("/usr/bin/nc.openbsd", at("etc/alternatives/nc")).expect("linked");
    let outside = tempfile::tempdir().expect("a folder");
    let kept = outside.path().join("kept");
    let stored = || fs::read_dir(&kept).map_or(0, Iterator::count);

    let found = |paths: &[&str], looked: bool| {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        (paths, looked)
    };
    let old = ["/usr/bin/nc.openbsd"];
    assert_eq!(next_process(folder.path(), &kept, 0), found(&old, true));
    assert_eq!(stored(), 0, "what changed just now may change unnoticed");
    let later = i64::from(u32::MAX);
    let next = || next_process(folder.path(), &kept, later);
    assert_eq!(next(), found(&old, true));
    assert_eq!(next(), found(&old, false));

    // Behind a link, in a folder that no programs are in.
    fs::remove_file(at("etc/alternatives/nc")).expect("removed");
    symlink("/usr/bin/nc.old", at("etc/alternatives/nc")).expect("linked");
    assert_eq!(next(), found(&["/usr/bin/nc.old"], true));
    assert_eq!(next(), found(&["/usr/bin/nc.old"], false));
    // Another name, anywhere.
    fs::hard_link(at("usr/bin/nc.old"), at("usr/share/hidden")).expect("linked");
    let linked = ["/usr/bin/nc.old", "/usr/share/hidden"];
    assert_eq!(next(), found(&linked, true));
    assert_eq!(next(), found(&linked, false));
    fs::rename(at("usr/share"), at("usr/moved")).expect("renamed");
    let moved = ["/usr/bin/nc.old", "/usr/moved/hidden"];
    assert_eq!(next(), found(&moved, true));
    // A program that was not there.
    fs::write(at("usr/bin/az"), "text").expect("written");
    let more = ["/usr/bin/az", "/usr/bin/nc.old", "/usr/moved/hidden"];
    assert_eq!(next(), found(&more, true));
    assert_eq!(next(), found(&more, false));
}

#[test]
fn what_others_can_write_or_nobody_can_read_is_not_believed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = root(&["/usr/bin/nc"]);
    let outside = tempfile::tempdir().expect("a folder");
    let kept = outside.path().join("kept");
    let later = i64::from(u32::MAX);
    let next = || next_process(folder.path(), &kept, later);
    let right = (vec!["/usr/bin/nc".to_owned()], true);
    assert_eq!(next(), right);
    let mut files = fs::read_dir(&kept).expect("kept").flatten();
    let file = files.next().expect("a file").path();
    let sound = fs::read_to_string(&file).expect("read");
    let empty = sound.replace(r#"["/usr/bin/nc","nc","nc"]"#, "");
    assert_ne!(sound, empty);
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
    };

    fs::write(&file, &empty).expect("written");
    assert_eq!(next(), (Vec::new(), false), "or the rest shows nothing");
    for (folder_mode, file_mode) in [
        (0o700, 0o620),
        (0o700, 0o602),
        (0o770, 0o600),
        (0o777, 0o600),
    ] {
        fs::write(&file, &empty).expect("written");
        mode(&file, file_mode);
        mode(&kept, folder_mode);
        assert_eq!(next(), right, "{folder_mode:o} {file_mode:o}");
        mode(&kept, 0o700);
        mode(&file, 0o600);
    }
    for text in ["", "{}", "[1]", &sound[..sound.len() / 2], "\u{0}"] {
        fs::write(&file, text).expect("written");
        assert_eq!(next(), right, "{text:?}");
    }
    fs::remove_file(&file).expect("removed");
    let elsewhere = outside.path().join("elsewhere");
    fs::write(&elsewhere, &empty).expect("written");
    symlink(&elsewhere, &file).expect("linked");
    assert_eq!(next(), right, "a link is not followed");
}

#[test]
fn a_denied_file_is_found_under_any_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = root(&["/usr/bin/nc", "/usr/bin/ls"]);
    let names = [&b"usr/bin/\xff"[..], b"opt/\xfe/tool"].map(OsStr::from_bytes);
    for name in names {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("above")).expect("made");
        fs::hard_link(folder.path().join("usr/bin/nc"), path).expect("linked");
    }
    let found = look(folder.path(), "command_denylist: [nc]\n");
    let found: Vec<&Path> = found
        .denied
        .keys()
        .map(std::path::PathBuf::as_path)
        .collect();
    let [beside, below] = names.map(|name| Path::new("/").join(name));
    assert_eq!(found, [&below, Path::new("/usr/bin/nc"), &beside]);
}
