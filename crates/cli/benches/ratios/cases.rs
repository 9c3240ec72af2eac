//! What is measured.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use brig_egress::{Layer, LayerKind, Rule};
use brig_linux::clone::ALL_NAMESPACES;
use brig_linux::gate::{GatedProgram, spawn_gated};
use brig_native::NativeBackend;
use brig_sandbox::{AgentId, ExecutionStatus, Report, Sandbox, Session, SessionConfig};
use rustix::process::{WaitIdOptions, waitid};
use tokio::runtime::Runtime;

use crate::PYTHON;
use crate::measure::Case;

pub(crate) const BARE_TRUE: &str = "/bin/true";
pub(crate) const BARE_PYTHON: &str = "python3 -c pass";
pub(crate) const FLOOR: &str = "clone3 with all namespaces + exec /bin/true";
pub(crate) const BWRAP_TRUE: &str = "bwrap --unshare-all /bin/true";
pub(crate) const BWRAP_PYTHON: &str = "bwrap --unshare-all python3 -c pass";
pub(crate) const BRIG_TRUE: &str = "brig run -- /bin/true";
pub(crate) const BRIG_PYTHON: &str = "brig run -c pass";
pub(crate) const LIBRARY_WHOLE: &str = "library: create + exec /bin/true + destroy";
pub(crate) const NETWORK_OFF: &str = "library: create + destroy";
pub(crate) const NETWORK_ON: &str = "library: create + destroy, with a network";
pub(crate) const LIBRARY_ONCE: &str = "library: run_once /bin/true";
pub(crate) const LIVE_TRUE: &str = "library: exec /bin/true in a live session";
pub(crate) const LIVE_PYTHON: &str = "library: exec python3 -c pass in a live one";
const DOCKER_RUN: &str = "docker run --rm --network none true";
const DOCKER_EXEC: &str = "docker exec true";

/// Where the container that `docker exec` runs in is found again.
struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        let _ = quiet(Command::new("docker").args(["rm", "-f", &self.0]));
    }
}

/// The cases, and lines about those that can't be measured here.
pub(crate) fn all(runtime: &Runtime) -> (Vec<Case<'_>>, Vec<String>) {
    let mut notes = Vec::new();
    let mut cases = vec![
        command(BARE_TRUE, None, &["/bin/true"]),
        command(BARE_PYTHON, None, &[PYTHON, "-c", "pass"]),
        Case {
            name: FLOOR,
            base: Some(BARE_TRUE),
            run: Box::new(floor),
        },
    ];
    let bwrap = [
        "bwrap",
        "--unshare-all",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
    ];
    if installed("bwrap") {
        let with = |rest: &[&'static str]| [&bwrap[..], rest].concat();
        cases.push(command(BWRAP_TRUE, Some(BARE_TRUE), &with(&["/bin/true"])));
        cases.push(command(
            BWRAP_PYTHON,
            Some(BARE_PYTHON),
            &with(&[PYTHON, "-c", "pass"]),
        ));
    } else {
        notes.push("bwrap: not installed".into());
    }
    docker(&mut cases, &mut notes);
    let brig = env!("CARGO_BIN_EXE_brig");
    match Command::new(brig)
        .args(["run", "-c", "print(6 * 7)"])
        .output()
    {
        Ok(output) if output.stdout == b"42\n" => {
            cases.push(command(
                BRIG_TRUE,
                Some(BWRAP_TRUE),
                &[brig, "run", "--", "/bin/true"],
            ));
            cases.push(command(
                BRIG_PYTHON,
                Some(BARE_PYTHON),
                &[brig, "run", "-c", "pass"],
            ));
        }
        other => notes.push(format!(
            "brig run: left out, because it does not work: {other:?}"
        )),
    }
    library(runtime, &mut cases);
    (cases, notes)
}

fn library<'a>(runtime: &'a Runtime, cases: &mut Vec<Case<'a>>) {
    let sandbox = sandbox();
    let live = match runtime.block_on(session(&sandbox)) {
        Ok(live) => live,
        Err(why) => return println!("library: left out: {why}"),
    };
    for (name, rules) in [(NETWORK_OFF, &[][..]), (NETWORK_ON, &["example.org"])] {
        let rules = rules.iter().filter_map(|rule| Rule::parse(rule).ok());
        let mut config = SessionConfig::default();
        config.network.layers = vec![Layer::new(LayerKind::Run).allow(rules)];
        let owned = sandbox.clone();
        cases.push(Case {
            name,
            base: Some(NETWORK_OFF),
            run: Box::new(move || {
                runtime.block_on(async {
                    let agent = agent();
                    let session = owned.create_session(&agent, None, config.clone());
                    let session = session.await.map_err(|error| error.to_string())?;
                    session.destroy().await.map_err(|error| error.to_string())
                })
            }),
        });
    }
    let python = live.clone();
    let owned = sandbox.clone();
    cases.push(Case {
        name: LIBRARY_WHOLE,
        base: Some(BARE_TRUE),
        run: Box::new(move || {
            runtime.block_on(async {
                let session = session(&owned).await?;
                good(session.run(vec!["/bin/true".into()]).await)?;
                session.destroy().await.map_err(|error| error.to_string())
            })
        }),
    });
    cases.push(Case {
        name: LIBRARY_ONCE,
        base: Some(BARE_TRUE),
        run: Box::new(move || {
            let request = brig_sandbox::Request::command(["/bin/true"]);
            let config = SessionConfig::default();
            good(runtime.block_on(sandbox.run_once(&agent(), config, request)))
        }),
    });
    cases.push(Case {
        name: LIVE_TRUE,
        base: Some(BARE_TRUE),
        run: Box::new(move || good(runtime.block_on(live.run(vec!["/bin/true".into()])))),
    });
    let argv = || [PYTHON, "-c", "pass"].map(String::from).to_vec();
    cases.push(Case {
        name: LIVE_PYTHON,
        base: Some(BARE_PYTHON),
        run: Box::new(move || good(runtime.block_on(python.run(argv())))),
    });
}

pub(crate) fn sandbox() -> Sandbox {
    Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .expect("a sandbox")
}

pub(crate) fn agent() -> AgentId {
    "bench".parse().expect("a valid name")
}

pub(crate) async fn session(sandbox: &Sandbox) -> Result<Session, String> {
    let config = SessionConfig::default();
    sandbox
        .create_session(&agent(), None, config)
        .await
        .map_err(|error| error.to_string())
}

fn good(report: brig_sandbox::Result<Report>) -> Result<(), String> {
    match report {
        Ok(report) if report.status() == ExecutionStatus::Completed => Ok(()),
        Ok(report) => Err(report.to_json().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// What the kernel alone takes for the same namespaces.
fn floor() -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let program = File::open("/bin/true").map_err(failed)?;
    let null = File::open("/dev/null").map_err(failed)?;
    let argv: [&CStr; 1] = [c"true"];
    let waiting = spawn_gated(&GatedProgram {
        namespaces: ALL_NAMESPACES,
        program: program.as_fd(),
        argv: &argv,
        descriptors: &[],
        null: null.as_fd(),
        cgroup: None,
        tasks: &[],
    })
    .map_err(failed)?;
    let (child, _gate) = waiting.release().map_err(failed)?;
    let pid = rustix::process::Pid::from_raw(child.pid().cast_signed()).ok_or("no process id")?;
    let status = waitid(rustix::process::WaitId::Pid(pid), WaitIdOptions::EXITED)
        .map_err(|error| error.to_string())?;
    match status.and_then(|status| status.exit_status()) {
        Some(0) => Ok(()),
        other => Err(format!("ended with {other:?}")),
    }
}

fn command(name: &'static str, base: Option<&'static str>, argv: &[&'static str]) -> Case<'static> {
    let argv = argv.to_vec();
    let run = move || quiet(Command::new(argv[0]).args(&argv[1..]));
    Case {
        name,
        base,
        run: Box::new(run),
    }
}

fn quiet(command: &mut Command) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| error.to_string())?;
    if output.success() {
        Ok(())
    } else {
        Err(output.to_string())
    }
}

fn installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// Needs an engine that answers and an image that is there already: nothing is fetched.
fn docker(cases: &mut Vec<Case<'_>>, notes: &mut Vec<String>) {
    if !installed("docker") {
        return notes.push("docker: not installed".into());
    }
    if quiet(Command::new("docker").arg("version")).is_err() {
        return notes.push("docker: no engine answers".into());
    }
    let image = std::env::var("BRIG_BENCH_IMAGE").unwrap_or_else(|_| "busybox".into());
    let run = ["run", "--rm", "--network", "none", "--pull", "never"];
    let start = Command::new("docker")
        .args([
            "run",
            "-d",
            "--rm",
            "--network",
            "none",
            "--pull",
            "never",
            &image,
            "sleep",
            "3600",
        ])
        .output();
    let container = match start {
        Ok(output) if output.status.success() => {
            Container(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => return notes.push(format!("docker: no image `{image}` (set BRIG_BENCH_IMAGE)")),
    };
    cases.push(Case {
        name: DOCKER_RUN,
        base: Some(BARE_TRUE),
        run: Box::new(move || quiet(Command::new("docker").args(run).args([&image, "true"]))),
    });
    cases.push(Case {
        name: DOCKER_EXEC,
        base: Some(BARE_TRUE),
        run: Box::new(move || quiet(Command::new("docker").args(["exec", &container.0, "true"]))),
    });
}
