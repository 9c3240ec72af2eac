//! The page is current, and no code is used that is not in the enum.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use brig_reason::{Group, ReasonCode, table};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_is_current() {
    let path = root().join("docs/reference/reason-codes.md");
    let kept = fs::read_to_string(&path).expect("the page");
    let mut now = kept.clone();
    for group in Group::ALL {
        let open = format!("<!-- codes: {} -->\n", group.marker());
        let (before, rest) = now.split_once(&open).expect("the start of a table");
        let (_, after) = rest
            .split_once("<!-- /codes -->")
            .expect("the end of a table");
        now = format!("{before}{open}\n{}\n<!-- /codes -->{after}", table(*group));
    }
    if std::env::var_os("BRIG_BLESS").is_some() {
        fs::write(&path, &now).expect("the page can be written");
        return;
    }
    assert!(
        kept == now,
        "docs/reference/reason-codes.md is out of date; run `BRIG_BLESS=1 cargo test -p brig-reason`"
    );
}

#[test]
fn every_code_is_unique_and_well_formed() {
    let mut seen = BTreeSet::new();
    for code in ReasonCode::ALL {
        assert!(seen.insert(code.code()), "{code} is there twice");
        let (area, name) = code.code().split_once('.').expect("an area and a name");
        let word = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(area.chars().all(word) && name.chars().all(word), "{code}");
        assert!(
            !code.meaning().is_empty() && code.fix() != Some(""),
            "{code}"
        );
    }
}

/// Endings of files and hosts, which may look like a code.
const NOT_CODES: [&str; 9] = [
    "json", "yaml", "lock", "py", "sock", "org", "example", "com", "execute",
];

/// Names and keys that are not codes.
const NAMES: [&str; 2] = ["session.new", "network.layers"];

#[test]
fn no_code_is_used_that_is_not_in_the_enum() {
    let known: BTreeSet<&str> = ReasonCode::ALL.iter().map(|code| code.code()).collect();
    let areas: BTreeSet<&str> = known
        .iter()
        .filter_map(|code| code.split('.').next())
        .collect();
    let mut files = Vec::new();
    for directory in ["crates", "fuzz"] {
        collect(&root().join(directory), "rs", &mut files);
    }
    assert!(files.len() > 300, "the sources were not found");
    let mut unknown = Vec::new();
    let mut used = 0;
    for file in &files {
        let text = fs::read_to_string(file).expect("a source file");
        for literal in literals(&text) {
            let Some((area, name)) = literal.split_once('.') else {
                continue;
            };
            if !areas.contains(area) || NAMES.contains(&literal) {
                continue;
            }
            if known.contains(literal) {
                used += 1;
            } else if !NOT_CODES.contains(&name) {
                unknown.push(format!("{}: {literal}", file.display()));
            }
        }
    }
    assert!(
        used > 100,
        "the tests name codes, so the search must find some"
    );
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn documents_name_only_codes_that_exist() {
    let known: BTreeSet<&str> = ReasonCode::ALL.iter().map(|code| code.code()).collect();
    let areas: BTreeSet<&str> = known
        .iter()
        .filter_map(|code| code.split('.').next())
        .collect();
    let mut unknown = Vec::new();
    let docs = root().join("docs");
    let mut files = Vec::new();
    collect(&docs, "md", &mut files);
    assert!(files.len() > 10, "the documents were not found");
    for file in files {
        let text = fs::read_to_string(&file).expect("a document");
        for word in text.split('`').skip(1).step_by(2) {
            if let Some((area, name)) = word.split_once('.')
                && areas.contains(area)
                && is_word(name)
                && !NOT_CODES.contains(&name)
                && !NAMES.contains(&word)
                && !known.contains(word)
            {
                unknown.push(format!("{}: {word}", file.display()));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

fn collect(directory: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, extension, files);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// Texts in quotes that consist of two words with a dot between them.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').filter(|part| {
        part.split_once('.')
            .is_some_and(|(area, name)| is_word(area) && is_word(name))
    })
}
