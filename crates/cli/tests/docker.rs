//! `--backend docker`, on the engine that `scripts/test` started.
#![cfg(feature = "docker")]

mod common;

use common::{Brig, Done};

struct Docker {
    brig: Brig,
    host: String,
    image: String,
}

impl Docker {
    fn find(test: &str) -> Option<Self> {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(socket), Some(image)) = (given("BRIG_TEST_DOCKER"), given("BRIG_TEST_IMAGE"))
        else {
            let why = "no container engine was started for the tests (scripts/test does, as root)";
            brig_testing::skip(test, why);
            return None;
        };
        Some(Self {
            brig: Brig::new(),
            host: format!("unix://{socket}"),
            image,
        })
    }

    fn run(&self, args: &[&str]) -> Done {
        let mut command = self.brig.command(args);
        Done(
            command
                .env("DOCKER_HOST", &self.host)
                .output()
                .expect("brig"),
        )
    }

    fn sandbox<'a>(&'a self, before: &[&'a str], after: &[&'a str]) -> Done {
        let flags = [
            "--backend",
            "docker",
            "--image",
            &self.image,
            "--runtime",
            "runc",
        ];
        self.run(&[before, &flags, after].concat())
    }
}

#[test]
fn code_runs_in_a_container() {
    let Some(docker) = Docker::find("brig run --backend docker") else {
        return;
    };
    let object = docker
        .sandbox(&["run", "--json"], &["-c", "print(6 * 7)"])
        .exits(0)
        .json();
    assert_eq!(object["backend"], "docker");
    assert_eq!(object["result"]["stdout"], "42\n");
    docker
        .sandbox(&["run"], &["--", "/bin/sh", "-c", "exit 7"])
        .exits(7);
    docker
        .sandbox(&["run"], &["--python", "/usr/bin/python3", "-c", "1"])
        .exits(125)
        .complains("--image");
    docker
        .sandbox(&["run"], &["--timeout", "1s", "--", "sleep", "60"])
        .exits(124);
}

#[test]
fn a_session_keeps_its_image_and_its_files() {
    let Some(docker) = Docker::find("brig session with --backend docker") else {
        return;
    };
    docker.sandbox(&["session", "create"], &["s"]).exits(0);
    docker
        .run(&[
            "session",
            "exec",
            "s",
            "--",
            "/bin/sh",
            "-c",
            "echo kept > file",
        ])
        .exits(0);
    docker
        .run(&["session", "exec", "s", "--", "cat", "file"])
        .exits(0)
        .prints("kept\n");
    docker.run(&["session", "checkpoint", "s", "c"]).exits(0);
    docker
        .run(&["session", "exec", "s", "--", "rm", "file"])
        .exits(0);
    docker.run(&["session", "restore", "s", "c"]).exits(0);
    docker
        .run(&["session", "exec", "s", "--", "cat", "file"])
        .exits(0)
        .prints("kept\n");
    let object = docker
        .run(&["session", "inspect", "--json", "s"])
        .exits(0)
        .json();
    assert_eq!(object["backend"], "docker");
    assert_eq!(object["config"]["image"], docker.image);
    docker.run(&["session", "destroy", "s"]).exits(0);
}

#[test]
fn doctor_tells_of_the_engine() {
    let Some(docker) = Docker::find("brig doctor with an engine") else {
        return;
    };
    let object = docker.run(&["doctor", "--json"]).exits(0).json();
    let findings = object["backends"][1]["findings"]
        .as_array()
        .expect("findings")
        .clone();
    let has = |what: &str| findings.iter().any(|finding| finding["what"] == what);
    assert_eq!(object["backends"][1]["name"], "docker");
    assert!(
        has("engine") && has("runtimes") && has("security options"),
        "{findings:?}"
    );
}

/// Without an engine only `docker` is missing.
#[test]
fn an_engine_that_is_not_there_is_named_with_what_to_do() {
    let brig = Brig::new();
    let nowhere = format!("unix://{}/none.sock", brig.home().display());
    let run = |args: &[&str]| {
        let output = brig.command(args).env("DOCKER_HOST", &nowhere).output();
        Done(output.expect("brig"))
    };
    run(&["run", "--backend", "docker", "-c", "1"])
        .exits(125)
        .complains("reach the engine at unix://")
        .complains("DOCKER_HOST");
    let object = run(&["doctor", "--json"]).exits(0).json();
    let docker = &object["backends"][1];
    assert_eq!(docker["usable"], false);
    assert_eq!(docker["problem"]["code"], "engine.unreachable");
    run(&["run", "--image", "x", "-c", "1"])
        .exits(125)
        .complains("the native backend has no use for an image");
}
