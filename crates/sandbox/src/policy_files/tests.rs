use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::config::MountSpec;

const POLICY: &str = "version: '1.0'\nname: p\nrules: []\ndefaults: {action: allow}\n";

struct Files {
    _outer: tempfile::TempDir,
    /// Writable for the session.
    project: PathBuf,
    /// Not mounted.
    policies: PathBuf,
}

fn files() -> Files {
    let outer = tempfile::tempdir().expect("directory");
    let path = outer.path().canonicalize().expect("path");
    let (project, policies) = (path.join("project"), path.join("policies"));
    for directory in [&project, &policies] {
        fs::create_dir(directory).expect("directory");
        fs::write(directory.join("policy.yaml"), POLICY).expect("policy");
        fs::write(directory.join("governance.yaml"), POLICY).expect("policy");
    }
    Files {
        _outer: outer,
        project,
        policies,
    }
}

fn config(project: &Path, writable: bool) -> SessionConfig {
    SessionConfig {
        mounts: vec![MountSpec {
            source: project.to_owned(),
            target: "/data".into(),
            writable,
        }],
        ..SessionConfig::default()
    }
}

fn code(files: &PolicyFiles, config: SessionConfig) -> Option<&'static str> {
    let result = config.under_files(files, Compat::Strict);
    result.err().map(|error| error.code())
}

#[test]
fn a_policy_that_the_session_could_write_is_refused() {
    let Files {
        project,
        policies,
        _outer,
    } = files();
    let workspace = SessionConfig {
        workspace: Some(project.clone()),
        ..SessionConfig::default()
    };
    let inside = PolicyFiles::new([project.join("policy.yaml")]);
    assert_eq!(
        code(&inside, config(&project, true)),
        Some("policy.writable")
    );
    assert_eq!(code(&inside, workspace.clone()), Some("policy.writable"));
    // Control: read-only, or elsewhere.
    assert_eq!(code(&inside, config(&project, false)), None);
    let outside = PolicyFiles::new([policies.join("policy.yaml")]);
    assert_eq!(code(&outside, config(&project, true)), None);
    // A file that a policy was already read from counts as well.
    let agent = PolicyFiles::default().and(None, [project.join("policy.yaml")]);
    assert_eq!(code(&agent, workspace.clone()), Some("policy.writable"));
    let directory = PolicyFiles::in_directory(&project, &project).expect("found");
    assert_eq!(code(&directory, workspace), Some("policy.writable"));
    assert_eq!(code(&directory, SessionConfig::default()), None);
}

#[test]
fn a_directory_that_a_policy_mounts_counts_as_writable() {
    let Files {
        policies, _outer, ..
    } = files();
    let text = format!(
        "{POLICY}sandbox_mounts: {{output_dir: '{}'}}\n",
        policies.display()
    );
    fs::write(policies.join("policy.yaml"), text).expect("policy");
    let files = PolicyFiles::new([policies.join("policy.yaml")]);
    assert_eq!(
        code(&files, SessionConfig::default()),
        Some("policy.writable")
    );
}

#[test]
fn a_link_of_the_code_does_not_choose_the_policy() {
    let Files {
        project,
        policies,
        _outer,
    } = files();
    symlink(policies.join("policy.yaml"), project.join("link.yaml")).expect("link");
    symlink(&policies, project.join("root")).expect("link");
    let linked = PolicyFiles::new([project.join("link.yaml")]);
    assert_eq!(code(&linked, SessionConfig::default()), Some("file.failed"));
    assert!(linked.load(Compat::Strict).is_err());
    assert!(PolicyFiles::in_directory(&project.join("root"), &policies).is_err());
    assert!(PolicyFiles::in_directory(&policies, &project.join("root")).is_err());
    // Control: by their own paths.
    assert!(PolicyFiles::in_directory(&policies, &policies).is_ok());
}

#[test]
fn invalid_policies_are_refused_with_all_their_problems() {
    let Files {
        policies, _outer, ..
    } = files();
    let (one, two) = (policies.join("one.yaml"), policies.join("two.yaml"));
    fs::write(&one, "rules: 1\n").expect("policy");
    fs::write(&two, "- x\n").expect("policy");
    let files = PolicyFiles::new([one, policies.join("policy.yaml"), two]);
    let error = files.load(Compat::Strict).expect_err("invalid");
    let Error::PolicyInvalid { files, problems } = &error else {
        panic!("{error}");
    };
    assert_eq!(files.len(), 2);
    assert!(problems.len() >= 2);
    assert_eq!(error.code(), "policy.invalid");
}

#[test]
fn no_files_are_no_policies() {
    let loaded = PolicyFiles::default().load(Compat::Strict).expect("none");
    assert!(loaded.policies.is_none());
}
