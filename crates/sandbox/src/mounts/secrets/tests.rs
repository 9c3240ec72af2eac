//! What code in a writable mount can do about what the next run is shown.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::config::MountSpec;
use crate::mounts::{Hiding, check};
use crate::plan::{CheckedMount, HiddenKind, HiddenReason};
use crate::{Error, SessionConfig};

/// A directory with files in it, and links.
fn tree(files: &[&str], links: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let root = folder.path().canonicalize().expect("path");
    for file in files {
        let file = root.join(file);
        fs::create_dir_all(file.parent().expect("parent")).expect("folder");
        fs::write(file, "secret").expect("file");
    }
    for (link, target) in links {
        symlink(target, root.join(link)).expect("link");
    }
    (folder, root)
}

fn config(sources: &[&Path], writable: bool) -> SessionConfig {
    let spec = |(index, source): (usize, &&Path)| MountSpec {
        source: (*source).to_owned(),
        target: format!("/mnt/{index}").into(),
        writable,
    };
    SessionConfig {
        mounts: sources.iter().enumerate().map(spec).collect(),
        ..SessionConfig::default()
    }
}

/// As on native, but for the number.
const PINS: Hiding = Hiding {
    pins: true,
    most: 100,
};

fn checked(sources: &[&Path], writable: bool, hiding: Hiding) -> Vec<CheckedMount> {
    let places = check(&config(sources, writable), &[], hiding);
    places.expect("allowed").mounts
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn hidden(mount: &CheckedMount) -> Vec<String> {
    let hidden = mount.hidden.iter();
    let hidden = hidden.filter(|hidden| hidden.kind != HiddenKind::Link);
    hidden.map(|hidden| text(&hidden.path)).collect()
}

fn links(mount: &CheckedMount) -> Vec<String> {
    let hidden = mount.hidden.iter();
    let hidden = hidden.filter(|hidden| hidden.kind == HiddenKind::Link);
    hidden.map(|hidden| text(&hidden.path)).collect()
}

fn pinned(mount: &CheckedMount) -> Vec<String> {
    mount
        .pinned
        .iter()
        .map(|pinned| text(&pinned.path))
        .collect()
}

#[test]
fn names_that_a_secret_is_known_by_are_pinned() {
    let files = [
        "home/.config/gh/hosts.yml",
        "home/.config/app/settings",
        "home/.local/share/keyrings/login",
        "a/b/.npmrc",
        "deep/er/keys/id",
    ];
    let (_folder, root) = tree(&files, &[(".ssh", "second"), ("second", "deep/er/keys")]);
    let all = [
        "a/b/.npmrc",
        "deep/er/keys",
        "home/.config/gh",
        "home/.local/share/keyrings",
    ];
    let mount = &checked(&[&root], true, PINS)[0];
    assert_eq!(hidden(mount), all);
    assert_eq!(links(mount), [".ssh", "second"]);
    // Not `home`, nor `a/b`: what is hidden in them is found under any name that they have.
    let expected = [
        "deep",
        "deep/er",
        "home/.config",
        "home/.local",
        "home/.local/share",
    ];
    assert_eq!(pinned(mount), expected);
    // What can't be changed needs none.
    let mount = &checked(&[&root], false, PINS)[0];
    assert_eq!(hidden(mount), all);
    assert!(pinned(mount).is_empty() && links(mount).is_empty());
    // Where nothing can be pinned, more is hidden.
    let mount = &checked(
        &[&root],
        true,
        Hiding {
            pins: false,
            ..PINS
        },
    )[0];
    let wider = ["a/b/.npmrc", "deep/er/keys", "home/.config", "home/.local"];
    assert_eq!(hidden(mount), wider);
    assert!(pinned(mount).is_empty() && links(mount).is_empty());
}

#[test]
fn a_link_into_another_mount_hides_what_it_leads_to_there() {
    let (_first, first) = tree(&["file"], &[]);
    let (_second, second) = tree(&["sub/keys/id", "sub/other"], &[]);
    symlink(second.join("sub/keys"), first.join(".ssh")).expect("link");
    let mounts = checked(&[&first, &second, &second.join("sub")], true, PINS);
    assert!(hidden(&mounts[0]).is_empty());
    assert_eq!(links(&mounts[0]), [".ssh"]);
    assert_eq!(hidden(&mounts[1]), ["sub/keys"]);
    assert_eq!(pinned(&mounts[1]), ["sub"]);
    assert_eq!(hidden(&mounts[2]), ["keys"]);
    let reason = &mounts[1].hidden[0].reason;
    assert_eq!(*reason, HiddenReason::Link(first.join(".ssh")));
    // Control: nothing leads there.
    assert!(hidden(&checked(&[&second], true, PINS)[0]).is_empty());
}

#[test]
fn a_link_does_not_hide_the_mount_itself() {
    let (_folder, root) = tree(&["sub/keys/id"], &[]);
    for (name, target) in [(".ssh", "."), (".aws", "sub/../.."), (".kube", "/")] {
        symlink(target, root.join(name)).expect("link");
    }
    symlink("../..", root.join("sub/.gnupg")).expect("link");
    let mount = &checked(&[&root], true, PINS)[0];
    assert!(
        mount.hidden.is_empty() && mount.pinned.is_empty(),
        "{mount:?}"
    );
    symlink("keys", root.join("sub/.ssh")).expect("link");
    assert_eq!(hidden(&checked(&[&root], true, PINS)[0]), ["sub/keys"]);
}

#[test]
fn a_flood_of_names_is_hidden_with_its_directory() {
    let (_folder, root) = tree(&["home/.config/gh/hosts.yml", "home/.npmrc", "plain"], &[]);
    let fill = |place: &str, name: &str, numbers: std::ops::Range<usize>| {
        for number in numbers {
            let folder = root.join(place).join(format!("{name}{number}"));
            fs::create_dir_all(&folder).expect("folder");
            fs::write(folder.join(".npmrc"), "").expect("file");
        }
    };
    fill("x/y", "d", 0..110);
    assert_eq!(
        hidden(&checked(&[&root], true, Hiding { most: 200, ..PINS })[0]).len(),
        112,
        "control"
    );
    let mount = &checked(&[&root], true, PINS)[0];
    assert_eq!(hidden(mount), ["home/.config/gh", "home/.npmrc", "x/y"]);
    assert_eq!(mount.hidden[2].reason, HiddenReason::Holds(110));
    assert_eq!(pinned(mount), ["home/.config"]);
    // Few with long names take as much.
    fs::remove_dir_all(root.join("x")).expect("remove");
    fill("x", &"n".repeat(250), 0..25);
    let wide = Hiding { most: 4000, ..PINS };
    let mount = &checked(&[root.as_path(); 40], true, wide)[0];
    assert_eq!(hidden(mount), ["home/.config/gh", "home/.npmrc", "x"]);
    // Control: so many are hidden one by one.
    fs::remove_dir_all(root.join("x")).expect("remove");
    fill("", "d", 0..90);
    assert_eq!(hidden(&checked(&[&root], true, PINS)[0]).len(), 92);
    // Nothing is left but the mount itself.
    fill("", "d", 90..110);
    let error = check(&config(&[&root], true), &[], PINS).expect_err("too many");
    assert!(matches!(error, Error::MountRefused { .. }), "{error}");
    assert!(error.to_string().contains("100 paths"), "{error}");
}

#[test]
fn a_flood_of_links_does_not_hide_less() {
    let (_folder, root) = tree(&["deep/er/keys/id"], &[(".ssh", "deep/er/keys")]);
    for number in 0..110 {
        let folder = root.join(format!("x/d{number}"));
        fs::create_dir_all(&folder).expect("folder");
        symlink("../../deep/er/keys", folder.join(".aws")).expect("link");
    }
    let mount = &checked(&[&root], true, PINS)[0];
    assert_eq!(hidden(mount), ["deep/er/keys", "x"]);
    assert_eq!(links(mount), [".ssh"]);
    assert_eq!(pinned(mount), ["deep", "deep/er"]);
}

/// Every directory of the target is looked up again for each of them.
#[test]
fn links_that_take_long_to_follow_end_the_search() {
    let (_folder, root) = tree(&["a/file"], &[]);
    let long = format!("{}a", "a/../".repeat(800));
    symlink(&long, root.join("l0")).expect("link");
    for number in 1..35 {
        let next = format!("{}l{}", "a/../".repeat(800), number - 1);
        symlink(next, root.join(format!("l{number}"))).expect("link");
    }
    symlink("l34", root.join(".ssh")).expect("link");
    let mount = &checked(&[&root], true, PINS)[0];
    assert_eq!((hidden(mount), links(mount).len()), (vec!["a".into()], 36));
    for number in 0..8 {
        let folder = root.join(format!("d{number}"));
        fs::create_dir(&folder).expect("folder");
        for name in [".ssh", ".aws", ".kube", ".azure", ".oci"] {
            symlink("../l34", folder.join(name)).expect("link");
        }
    }
    let error = check(&config(&[&root], true), &[], PINS).expect_err("too many");
    assert!(error.to_string().contains("too many links"), "{error}");
}

#[test]
fn many_names_that_would_have_to_be_pinned_are_hidden() {
    let (_folder, root) = tree(&["plain"], &[]);
    for number in 0..60 {
        let folder = root.join(format!("x/d{number}/.local/share/keyrings"));
        fs::create_dir_all(&folder).expect("folder");
    }
    let mount = &checked(&[&root], true, PINS)[0];
    assert_eq!(hidden(mount), ["x"]);
    assert_eq!(mount.hidden[0].reason, HiddenReason::Holds(60));
    assert!(mount.pinned.is_empty());
}

#[test]
fn what_is_shown_is_not_decided_by_links_nor_by_moving() {
    let files = ["home/a/.ssh/id", "home/.npmrc", "vendor/file"];
    let (_folder, root) = tree(&files, &[(".npmrc", "home/a/.ssh")]);
    let showing = |path: &str| {
        let config = SessionConfig {
            show_secrets: vec![root.join(path)],
            ..config(&[&root], true)
        };
        let places = check(&config, &[], PINS).expect("allowed");
        places.mounts.into_iter().next().expect("a mount")
    };
    // Code has put a link in the place of what is shown.
    let mount = showing(".npmrc");
    assert_eq!(hidden(&mount), ["home/.npmrc", "home/a/.ssh"]);
    assert_eq!(hidden(&showing("home/a")), ["home/.npmrc"], "control");
    // Code could move what holds a secret to where all is shown.
    fs::remove_file(root.join(".npmrc")).expect("remove");
    assert!(
        pinned(&checked(&[&root], true, PINS)[0]).is_empty(),
        "control"
    );
    assert_eq!(pinned(&showing("vendor")), ["home", "home/a"]);
}

#[test]
fn fifos_are_hidden_in_read_only_mounts() {
    let (_folder, root) = tree(&["a/file", ".ssh/key"], &[]);
    for name in ["a/fifo", "shown"] {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, root.join(name), kind, mode, 0).expect("fifo");
    }
    let mut config = config(&[&root], false);
    config.show_secrets = vec![root.join("shown")];
    let mounts = check(&config, &[], PINS).expect("allowed").mounts;
    assert_eq!(hidden(&mounts[0]), [".ssh", "a/fifo"]);
    assert_eq!(mounts[0].hidden[1].reason, HiddenReason::Fifo);
    let writable = checked(&[&root], true, PINS);
    assert_eq!(
        hidden(&writable[0]),
        [".ssh"],
        "there code may write anyway"
    );
}
