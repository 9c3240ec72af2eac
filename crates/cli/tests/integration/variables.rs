//! Environment variables: by value, by name, from a file; and where values must not appear.

use crate::common::{Brig, Done};

const SHOW: &str = "import os; print([os.environ.get(name) for name in ('A', 'B', 'C')])";

fn with_token(brig: &Brig, words: &[&str]) -> Done {
    let mut command = brig.command(words);
    command.env("A", "tops3cret");
    Done(command.output().unwrap())
}

#[test]
fn a_variable_is_given_by_name() {
    let brig = Brig::new();
    with_token(&brig, &["run", "-e", "A", "-c", SHOW])
        .exits(0)
        .prints("['tops3cret', None, None]\n");
    // Nothing is passed on that was not named.
    with_token(&brig, &["run", "-c", SHOW])
        .exits(0)
        .prints("[None, None, None]\n");
    brig.run(["run", "-e", "BRIG_TEST_NOT_SET", "-c", SHOW])
        .exits(125)
        .complains("`BRIG_TEST_NOT_SET` of --env is not set in your environment");
    with_token(&brig, &["session", "create", "s", "-e", "A"]).exits(0);
    brig.run(["session", "exec", "s", "-c", SHOW])
        .exits(0)
        .prints("['tops3cret', None, None]\n");
    for format in [
        &["session", "inspect", "s"][..],
        &["session", "inspect", "s", "--json"],
    ] {
        let shown = brig.run(format).exits(0).stdout();
        assert!(!shown.contains("tops3cret"), "{shown}");
    }
    let object = brig.run(["session", "inspect", "s", "--json"]).json();
    assert_eq!(object["config"]["env"], serde_json::json!(["A"]));
}

#[test]
fn a_malformed_variable_is_not_repeated() {
    let brig = Brig::new();
    for words in [
        &["run", "-e", "B=1", "-e", "sk-tops3cret", "-c", SHOW][..],
        &["run", "--json", "-e", "B=1", "-e", "=tops3cret", "-c", SHOW],
        &["session", "create", "-e", "B=1", "--env", "a tops3cret"],
    ] {
        let done = brig.run(words).exits(125).complains("--env number 2");
        let said = done.stdout() + &done.stderr();
        assert!(!said.contains("tops3cret"), "{said}");
    }
}

#[test]
fn a_file_of_variables_is_read_and_overridden() {
    let brig = Brig::new();
    brig.write(
        "app.env",
        "# a comment\nA=1\n\nB=two words \"and quotes\"\nC\n",
    );
    brig.run(["run", "--env-file", "app.env", "-e", "A=2", "-c", SHOW])
        .exits(0)
        .prints("['2', 'two words \"and quotes\"', None]\n");
    brig.run(["session", "create", "s"]).exits(0);
    brig.run(["session", "exec", "--env-file", "app.env", "s", "-c", SHOW])
        .exits(0)
        .prints("['1', 'two words \"and quotes\"', None]\n");
    // What is wrong is told by its line, not by its text.
    brig.write("wrong.env", "A=1\ntops3cret-without-a-name\n");
    let wrong = brig
        .run(["run", "--env-file", "wrong.env", "-c", SHOW])
        .exits(125);
    assert!(
        wrong.stderr().contains("line 2 of `wrong.env`"),
        "{}",
        wrong.stderr()
    );
    assert!(!wrong.stderr().contains("tops3cret"), "{}", wrong.stderr());
    brig.run(["run", "--env-file", "none.env", "-c", SHOW])
        .exits(125);
    brig.write("refused.env", "LD_PRELOAD=/x\n");
    brig.run(["run", "--env-file", "refused.env", "-c", SHOW])
        .exits(125)
        .complains("LD_PRELOAD");
}

#[test]
fn values_are_not_recorded() {
    let brig = Brig::new();
    let code = "import os, sys; print(os.environ['A']); print(os.environ['A'], file=sys.stderr); \
                os.system('true ' + os.environ['A'])";
    with_token(&brig, &["run", "--observe", "-e", "A", "-c", code])
        .exits(0)
        .prints("tops3cret\n");
    // Positive control: something was recorded.
    let log = brig.run(["audit", "show", "--json"]).exits(0).stdout();
    assert!(
        log.contains("execution_id") || log.contains("execution"),
        "{log}"
    );
    let mut directories = vec![brig.home().join("state")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = std::fs::read(&path).unwrap();
            let found = text.windows(9).any(|part| part == b"tops3cret");
            assert!(!found, "{}", path.display());
        }
    }
}
