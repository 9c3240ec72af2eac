//! `--backend docker`, on the engine that `scripts/test` started.

use crate::common::{Brig, Done};

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
    assert_eq!(object["config"]["options"]["image"], docker.image);
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

/// The image of the user's defaults is what is tried.
#[test]
fn doctor_tries_the_default_image() {
    let Some(docker) = Docker::find("brig doctor with a default image") else {
        return;
    };
    let write = |image: &str| {
        let config = docker.brig.home().join("config/brig");
        std::fs::create_dir_all(&config).expect("made");
        let text = format!(
            "defaults:\n  backend: docker\n  options: {{image: '{image}', runtime: runc}}\n"
        );
        std::fs::write(config.join("config.yaml"), text).expect("written");
    };
    write(&docker.image);
    let object = docker.run(&["doctor", "--json"]).exits(0).json();
    assert_eq!(object["default_backend"], "docker");
    assert_eq!(object["backends"][1]["usable"], true, "{object}");
    docker.run(&["run", "--", "true"]).exits(0);
    // No such image is on the engine, and there is no registry there.
    write("127.0.0.1:1/absent/image:none");
    let object = docker.run(&["doctor", "--json"]).exits(125).json();
    assert_eq!(object["backends"][0]["usable"], true, "{object}");
    assert_eq!(object["backends"][1]["usable"], false, "{object}");
    docker.run(&["run", "--", "true"]).exits(125);
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
        .complains("the native backend does not support the option `image`");
}

/// The native backend in a container, with what an engine forbids by default and without.
#[test]
fn what_a_container_around_brig_forbids_is_named() {
    let test = "brig run in a container";
    let Some(docker) = Docker::find(test) else {
        return;
    };
    let inside = |options: &[&str], user: &str| {
        let options = [&["-e=HOME=/tmp", "-u", user], options].concat();
        nested(&docker, &options, &["run", "-c", "print(1)"])
    };
    let Some(plain) = inside(&[], "1000") else {
        return brig_testing::skip(test, "there is no docker command");
    };
    plain
        .exits(125)
        .prints("")
        .complains("a seccomp filter around Brig")
        .complains("--security-opt seccomp=unconfined");
    inside(&ALLOWED[..4], "1000")
        .unwrap()
        .exits(125)
        .prints("")
        .complains("parts of /proc are covered")
        .complains("--security-opt systempaths=unconfined");
    for user in ["0", "1000"] {
        inside(&ALLOWED, user).unwrap().exits(0).prints("1\n");
    }
}

/// `docker run` with these options, of Brig with these words, without a network.
fn nested(docker: &Docker, options: &[&str], words: &[&str]) -> Option<Done> {
    let brig = format!("{}:/usr/bin/brig:ro", env!("CARGO_BIN_EXE_brig"));
    let mut command = std::process::Command::new("docker");
    command
        .args(["-H", &docker.host, "run", "--rm", "--network", "none"])
        .args(["-v", &brig])
        .args(options)
        .args([&docker.image, "brig"])
        .args(words);
    command.output().ok().map(Done)
}

/// What makes an engine allow a sandbox in a container.
const ALLOWED: [&str; 6] = [
    "--security-opt",
    "seccomp=unconfined",
    "--security-opt",
    "apparmor=unconfined",
    "--security-opt",
    "systempaths=unconfined",
];

/// A pod as the restricted profile of Kubernetes wants it: a user without a name and without a home, no
/// capabilities, nothing to gain, a root that can't be written, and no control group.
#[test]
fn in_a_pod_the_fields_of_the_pod_are_named() {
    let test = "brig run in what is like a pod of Kubernetes";
    let Some(docker) = Docker::find(test) else {
        return;
    };
    let pod = [
        "-u",
        "1000:1000",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--tmpfs=/tmp",
        "-e=KUBERNETES_SERVICE_HOST=10.96.0.1",
        "-e=KUBERNETES_SERVICE_PORT=443",
        "-e=CI=true",
        "-e=HOME=/",
    ];
    let state = ["-e=XDG_STATE_HOME=/tmp/state"];
    let hello = ["run", "-c", "print(1)"];
    let run = |options: &[&[&str]], words: &[&str]| {
        nested(&docker, &[&[&pod[..]], options].concat().concat(), words)
    };
    let Some(plain) = run(&[&state], &hello) else {
        return brig_testing::skip(test, "there is no docker command");
    };
    let plain = plain.exits(125).prints("");
    let plain = plain.complains("seccompProfile.type: Unconfined and procMount: Unmasked");
    assert!(!plain.stderr().contains("docker run"), "{plain:?}");
    run(&[&state, &ALLOWED[..4]], &hello)
        .unwrap()
        .exits(125)
        .complains("securityContext.procMount: Unmasked, with hostUsers: false");
    let doctor = run(&[&state, &ALLOWED[..4]], &["doctor", "--json"]).unwrap();
    let object = doctor.exits(125).json();
    assert_eq!(object["backends"][0]["controls"], serde_json::json!([]));
    // A volume for what Brig keeps is named where there is none.
    run(&[&ALLOWED], &hello)
        .unwrap()
        .exits(125)
        .complains("XDG_STATE_HOME");
    run(&[&state, &ALLOWED], &hello)
        .unwrap()
        .exits(0)
        .prints("1\n")
        .stays_silent();
    let limited = ["run", "--memory", "256M", "-c", "print(1)"];
    run(&[&state, &ALLOWED], &limited)
        .unwrap()
        .exits(0)
        .prints("1\n")
        .complains("only observed here");
    let required = [&limited[..3], &["--require", "memory", "-c", "1"]].concat();
    run(&[&state, &ALLOWED], &required)
        .unwrap()
        .exits(125)
        .complains("policy.unenforceable");
}

/// A container job of GitHub Actions: root in the container, with the home and the checkout of the runner's user.
#[test]
fn in_a_container_job_the_options_of_the_engine_are_named() {
    use std::os::unix::fs::PermissionsExt;

    let test = "brig run in what is like a container job of GitHub Actions";
    let Some(docker) = Docker::find(test) else {
        return;
    };
    let of_runner = |name: &str, mode: u32| {
        let path = docker.brig.home().join(name);
        std::fs::create_dir_all(&path).expect("made");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("set");
        path.display().to_string()
    };
    let home = format!("-v={}:/github/home", of_runner("home", 0o755));
    let checkout = format!("-v={}:/__w/project", of_runner("project", 0o755));
    let job = [
        "-w=/__w/project",
        "-e=CI=true",
        "-e=GITHUB_ACTIONS=true",
        "-e=HOME=/github/home",
        &home,
        &checkout,
    ];
    let run = |options: &[&str], words: &[&str]| nested(&docker, &[&job, options].concat(), words);
    let hello = ["run", "-c", "print(1)"];
    let Some(plain) = run(&[], &hello) else {
        return brig_testing::skip(test, "there is no docker command");
    };
    plain
        .exits(125)
        .prints("")
        .complains("docker run --security-opt");
    run(&ALLOWED, &["doctor"]).unwrap().exits(0);
    run(&ALLOWED, &hello).unwrap().exits(0).prints("1\n");
    let failing = ["run", "--json", "-c", "raise SystemExit(7)"];
    let object = run(&ALLOWED, &failing).unwrap().exits(7).json();
    assert_eq!(object["result"]["exit_code"], 7);

    // Root may not mount there, so permissions decide what the sandbox can do with the checkout.
    let build = |flags: &[&str]| {
        let line = ["--", "sh", "-c", "cat given && echo built > artifact"];
        run(&ALLOWED, &[&["run"], flags, &line].concat()).unwrap()
    };
    std::fs::write(docker.brig.home().join("project/given"), "given\n").expect("written");
    build(&["-w", "."])
        .exits(125)
        .complains("root may make no mounts here")
        .complains("docker run --user");
    let read_only = build(&["-v", ".:/src", "--cwd", "/src"]);
    let read_only = read_only.prints("given\n");
    assert_ne!(read_only.0.status.code(), Some(0), "{read_only:?}");
    of_runner("project", 0o777);
    build(&["-w", "."]).exits(0).prints("given\n");
    let artifact = std::fs::read(docker.brig.home().join("project/artifact"));
    assert_eq!(artifact.expect("the result of the job"), b"built\n");
    run(&ALLOWED, &["audit", "verify"]).unwrap().exits(0);
}

/// The example with tools, which `tools::the_example_runs` runs on native.
#[cfg(feature = "mcp")]
#[test]
fn the_example_with_tools_runs_in_containers() {
    use crate::tools::{EXAMPLE_OUTPUT, Example};

    let Some(docker) = Docker::find("the example with tools in containers") else {
        return;
    };
    let example = Example::new();
    for runtime in runtimes() {
        let flags = ["--backend", "docker", "--image", &docker.image];
        // The gVisor of the tests is without control groups.
        let waived: &[&str] = if runtime == "gvisor" {
            &["--waive", "cpu"]
        } else {
            &[]
        };
        let flags = [&flags[..], &["--runtime", &runtime], waived].concat();
        let done = docker.run(&example.command(&flags));
        let output = done.exits(0).stdout();
        assert_eq!(output, EXAMPLE_OUTPUT, "{runtime}");
    }
}

#[test]
fn the_program_of_agts_readme_runs_in_containers() {
    let Some(docker) = Docker::find("the program of AGT's README in containers") else {
        return;
    };
    for runtime in runtimes() {
        let flags = ["--backend", "docker", "--image", &docker.image, "--runtime"];
        crate::tools::check_agt_readme(&docker.brig, |words| {
            let (run, rest) = words.split_at(1);
            docker.run(&[run, &flags[..], &[&runtime], rest].concat())
        });
    }
}

/// What the caller may use of what the engine has.
fn runtimes() -> Vec<String> {
    match std::env::var("BRIG_TEST_RUNTIMES") {
        Ok(listed) => listed.split(',').map(str::to_owned).collect(),
        Err(_) => ["runc", "gvisor"].map(str::to_owned).into(),
    }
}

/// The same tools on containers.
#[cfg(feature = "mcp")]
#[test]
fn a_client_works_in_containers() {
    use crate::mcp::client::{Client, Era};
    use serde_json::json;

    let Some(docker) = Docker::find("brig mcp --backend docker") else {
        return;
    };
    let image = docker.image.as_str();
    let flags = [
        "mcp",
        "--quiet",
        "--backend",
        "docker",
        "--image",
        image,
        "--runtime",
        "runc",
    ];
    let mut command = docker.brig.command(flags);
    let mut client = Client::raw(command.env("DOCKER_HOST", &docker.host), Era::Modern);
    let ran = client.done("run_code", json!({"code": "print(6 * 7)"}));
    assert_eq!(ran["stdout"], "42\n");
    client.done(
        "write_file",
        json!({"session": "s", "path": "a.txt", "content": "text"}),
    );
    let ran = client.done(
        "run_command",
        json!({"session": "s", "command": "cat a.txt"}),
    );
    assert_eq!(ran["stdout"], "text");
    let listed = client.done("list_files", json!({"session": "s"}));
    assert_eq!(listed["entries"][0]["path"], "a.txt");
    assert_eq!(client.close(), Some(0));
}

/// An engine of this test alone, which is stopped when this is dropped.
struct OwnEngine(tempfile::TempDir);

impl OwnEngine {
    const SCRIPT: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scripts/lib/docker-engine"
    );

    /// With the small image under a name that is used without being asked for.
    fn start(runtimes: &str) -> Self {
        let own = Self(tempfile::tempdir().expect("a directory"));
        let mut start = std::process::Command::new(Self::SCRIPT);
        start.arg("start").arg(own.0.path());
        start.env("BRIG_ENGINE_SMALL", "1");
        start.env("BRIG_ENGINE_RUNTIMES", runtimes);
        let output = start.output().expect("the script");
        assert!(output.status.success(), "{output:?}");
        let tag = "http://engine/images/brig-test-busybox:latest/tag?repo=brig-python&tag=latest";
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--fail", "-X", "POST", tag, "--unix-socket"]);
        assert!(curl.arg(own.socket()).status().expect("curl").success());
        own
    }

    fn socket(&self) -> std::path::PathBuf {
        self.0.path().join("docker.sock")
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        let mut stop = std::process::Command::new(Self::SCRIPT);
        let _ = stop.arg("stop").arg(self.0.path()).status();
    }
}

#[test]
fn doctor_says_that_code_can_run_beside_a_broken_runtime() {
    let test = "brig doctor beside a broken runtime";
    if Docker::find(test).is_none() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return brig_testing::skip(test, "only root can start an engine");
    }
    let engine = OwnEngine::start(r#""runsc-gone": { "path": "/nonexistent/runsc" }"#);
    let brig = Brig::new();
    let mut doctor = brig.command(["doctor", "--json"]);
    doctor.env(
        "DOCKER_HOST",
        format!("unix://{}", engine.socket().display()),
    );
    let object = Done(doctor.output().expect("brig")).json();
    let backends = object["backends"].as_array().expect("backends");
    let docker = backends.iter().find(|backend| backend["name"] == "docker");
    let docker = docker.expect("the engine");
    assert_eq!(docker["usable"], true, "{docker:#}");
    // The control: one of its runtimes is broken, and it says so.
    let findings = docker["findings"].to_string();
    assert!(findings.contains("runsc-gone does not work"), "{docker:#}");
    let mut doctor = brig.command(["doctor"]);
    doctor.env(
        "DOCKER_HOST",
        format!("unix://{}", engine.socket().display()),
    );
    let text = Done(doctor.output().expect("brig")).stdout();
    assert!(text.contains("docker: can run code here"), "{text}");
}
