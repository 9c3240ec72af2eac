//! Private images: a real registry of this machine that asks for a password, and the credentials of
//! `docker login`, from a file or a helper.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Engine, with_option};
use brig_docker::{DockerBackend, Options, Progress};
use brig_sandbox::{AgentId, Error, Request, Sandbox};
use brig_testing::{again, passes, test_name};

/// Where the test goes on with a configuration in its environment: the image, and where the helper is.
const HELPED: &str = "BRIG_TEST_REGISTRY";
const PROGRAMS: &str = "BRIG_TEST_PROGRAMS";

/// me:correct horse
const AUTH: &str = "bWU6Y29ycmVjdCBob3JzZQ==";
const PASSWORD: &str = "correct horse";

struct Registry {
    program: Child,
    address: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Registry {
    fn start(folder: &Path) -> Self {
        // Somebody else may get the port before the registry has it.
        let mut tries = (0..5).filter_map(|_| Self::try_start(folder));
        tries.next().expect("the registry starts")
    }

    /// Nothing if it ends at once.
    fn try_start(folder: &Path) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = port.local_addr().expect("an address").to_string();
        drop(port);
        let hash = Command::new("perl")
            .args([
                "-e",
                "print crypt($ARGV[0], '$2b$05$abcdefghijklmnopqrstuu')",
            ])
            .arg(PASSWORD)
            .output()
            .expect("perl");
        let hash = String::from_utf8(hash.stdout).expect("text");
        let passwords = folder.join("passwords");
        std::fs::write(&passwords, format!("me:{hash}\n")).expect("passwords");
        let config = folder.join("registry.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"{address}\"}}\nauth: {{htpasswd: {{realm: test, path: {}}}}}\n",
            folder.join("data").display(),
            passwords.display(),
        );
        std::fs::write(&config, text).expect("config");
        let program = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the registry");
        let mut registry = Self { program, address };
        let until = Instant::now() + Duration::from_secs(180);
        while TcpStream::connect(&registry.address).is_err() {
            if registry.program.try_wait().expect("its state").is_some() {
                return None;
            }
            assert!(Instant::now() < until, "the registry does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Another program would answer too.
        match registry.program.try_wait().expect("its state") {
            None => Some(registry),
            Some(_) => None,
        }
    }

    fn image(&self) -> String {
        format!("{}/private:1", self.address)
    }

    fn write_config(&self, folder: &Path, config: &str) -> PathBuf {
        let text = config.replace("ADDRESS", &self.address);
        std::fs::create_dir_all(folder).expect("a folder");
        std::fs::write(folder.join("config.json"), text).expect("config.json");
        folder.to_owned()
    }
}

fn docker(engine: &Engine, config: &Path, args: &[&str]) {
    let done = Command::new("docker")
        .arg("--config")
        .arg(config)
        .arg("--host")
        .arg(format!("unix://{}", engine.socket.display()))
        .args(args)
        .output()
        .expect("docker");
    assert!(done.status.success(), "{args:?}: {done:?}");
}

/// Uses the image, and returns all that was said meanwhile.
async fn used(
    engine: &Engine,
    logins: Option<PathBuf>,
    programs: Option<PathBuf>,
    image: &str,
) -> Result<String, Error> {
    let lines = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&lines);
    let backend = DockerBackend::connect(Options {
        logins,
        programs,
        progress: Some(Progress::new(move |line| {
            told.lock().expect("lock").push_str(line)
        })),
        ..engine.options()
    });
    let backend = Arc::new(backend.await.expect("it answers"));
    let sandbox = Sandbox::builder(backend).build()?;
    let agent: AgentId = "agent".parse()?;
    let config = with_option(engine.config("runc"), "image", image);
    let request = Request::command(["busybox", "id", "-u"]);
    let outcome = sandbox.run_once(&agent, config, request).await?.outcome;
    assert_eq!(outcome.stdout.bytes, b"65534\n");
    let said = lines.lock().expect("lock").clone();
    Ok(said)
}

/// In a process with the configuration in its environment, and a directory of the helper in `PATH` where code
/// could write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_helper() {
    let Ok(image) = std::env::var(HELPED) else {
        return;
    };
    let engine = Engine::find("a helper").expect("the engine of the test");
    let programs = PathBuf::from(std::env::var_os(PROGRAMS).expect("a directory"));
    let error = used(&engine, None, None, &image).await;
    let error = error
        .expect_err("a helper that code could change")
        .to_string();
    assert!(error.contains("docker-credential-test"), "{error}");
    assert!(error.contains("could change it"), "{error}");
    assert!(!programs.join("asked").exists(), "it was started");
    let said = used(&engine, None, Some(programs.clone()), &image).await;
    assert!(!said.expect("it is pulled").contains(PASSWORD));
    std::fs::remove_file(programs.join("asked")).expect("control: it was started");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_of_docker_login_are_used_for_their_registry() {
    let test = "a private registry";
    let Some(engine) = Engine::find(test) else {
        return;
    };
    let small = std::env::var("BRIG_TEST_SMALL_IMAGE").unwrap_or_default();
    let missing = |program: &str| Command::new(program).arg("--version").output().is_err();
    if small.is_empty() || missing("docker-registry") || missing("docker") {
        return brig_testing::skip(
            test,
            "docker-registry, docker or a static busybox is missing",
        );
    }
    let folder = tempfile::tempdir().expect("folder");
    let folder = folder.path();
    let registry = Registry::start(folder);
    let image = registry.image();
    let auth = format!(r#"{{"auths": {{"ADDRESS": {{"auth": "{AUTH}"}}}}}}"#);
    let good = registry.write_config(&folder.join("good"), &auth);
    let pull_anew = || docker(&engine, &good, &["rmi", "--no-prune", &image]);
    docker(&engine, &good, &["tag", &small, &image]);
    docker(&engine, &good, &["push", "--quiet", &image]);
    pull_anew();

    let other = r#"{"auths": {"127.0.0.1:1": {"auth": "AUTH"}}}"#.replace("AUTH", AUTH);
    let other = registry.write_config(&folder.join("other"), &other);
    let wrong = r#"{"auths": {"ADDRESS": {"auth": "bWU6d3Jvbmc="}}}"#;
    let wrong = registry.write_config(&folder.join("wrong"), wrong);
    for (what, config) in [
        ("none", folder.join("none")),
        ("of another registry", other),
        ("wrong", wrong),
    ] {
        let error = used(&engine, Some(config), None, &image)
            .await
            .expect_err(what);
        assert_eq!(error.code(), "engine.image", "{what}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(
            !shown.contains(AUTH) && !shown.contains(PASSWORD),
            "{shown}"
        );
    }
    let said = used(&engine, Some(good.clone()), None, &image).await;
    let said = said.expect("it is pulled");
    assert!(said.contains("pulling") && !said.contains(AUTH), "{said}");
    pull_anew();

    let program = folder.join("bin/docker-credential-test");
    std::fs::create_dir(folder.join("bin")).expect("a folder");
    let script = format!(
        "#!/bin/sh\n: > ASKED\nread -r server\n[ \"$1 $server\" = \"get {}\" ] || {{ echo credentials not found; exit 1; }}\n\
         echo '{{\"ServerURL\":\"x\",\"Username\":\"me\",\"Secret\":\"{PASSWORD}\"}}'\n",
        registry.address
    );
    let asked = folder.join("bin/asked").display().to_string();
    let script = script.replace("ASKED", &asked);
    std::fs::write(&program, script).expect("a program");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, all).expect("a mode");
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", folder.join("bin").display());
    for config in [
        r#"{"credsStore": "test"}"#,
        r#"{"credsStore": "other", "credHelpers": {"ADDRESS": "test"}}"#,
    ] {
        let config = registry.write_config(&folder.join("helped"), config);
        let mut child = again(&test_name!(with_a_helper));
        child.env("PATH", &path).env("DOCKER_CONFIG", config);
        child.env(HELPED, &image).env(PROGRAMS, folder.join("bin"));
        passes(child);
        pull_anew();
    }
}
