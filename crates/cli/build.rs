//! Finds the commit that `brig --version` names. Built outside a checkout, there is none.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of a crate is not in the command, and crates that are only for tests.
const NOT_IN_THE_COMMAND: &[&str] = &["tests", "benches", "examples"];
const ONLY_FOR_TESTS: &[&str] = &["attacks", "conformance", "testing"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let manifest = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    if let Some(commit) = Path::new(&manifest)
        .join("../..")
        .canonicalize()
        .ok()
        .and_then(|root| commit(&root))
    {
        println!("cargo::rustc-env=BRIG_COMMIT={commit}");
    }
}

/// The commit, with `-dirty` if what is built differs from it.
fn commit(root: &Path) -> Option<String> {
    // A tree inside another repository has no commit of its own.
    if Path::new(&git(root, &["rev-parse", "--show-toplevel"])?) != root {
        return None;
    }
    let commit = git(root, &["rev-parse", "--short=10", "HEAD"])?;
    // HEAD changes with the branch, and its log and the branch with a commit. A packed branch has no file.
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "logs/HEAD"].into_iter().chain(branch.as_deref()) {
        let path = root.join(git(root, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let sources = sources(root);
    for source in &sources {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let mut status = vec!["--no-optional-locks", "status", "--porcelain", "--"];
    status.extend(sources.iter().filter_map(|source| source.to_str()));
    let changed = !git(root, &status)?.is_empty();
    Some(if changed { commit + "-dirty" } else { commit })
}

/// What the command is made of, relative to the root.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo"]
        .map(PathBuf::from)
        .into();
    for name in names(&root.join("crates"), ONLY_FOR_TESTS) {
        let folder = Path::new("crates").join(name);
        let parts = names(&root.join(&folder), NOT_IN_THE_COMMAND);
        found.extend(parts.into_iter().map(|part| folder.join(part)));
    }
    found
}

fn names(folder: &Path, without: &[&str]) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| !without.contains(&name.as_str()))
        .collect();
    names.sort();
    names
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(args);
    // Set where a hook of another repository builds this one.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        git.env_remove(name);
    }
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
