//! What a container costs beside the `docker` command and the provider of the Agent Governance
//! Toolkit, on the same engine and in the same rounds.
//!
//!     scripts/bench-docker                           with an engine and AGT of its own
//!     cargo bench -p brig-docker -- --rounds 5       with the settings of scripts/lib/docker-engine

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_docker::{Address, DockerBackend, Options};
use brig_sandbox::{
    AgentId, ExecutionStatus, Language, Limit, Request, Sandbox, Session, SessionConfig, SessionId,
};

fn main() {
    let (Ok(socket), Ok(image)) = (
        std::env::var("BRIG_TEST_DOCKER"),
        std::env::var("BRIG_TEST_IMAGE"),
    ) else {
        println!("no engine: set BRIG_TEST_DOCKER and BRIG_TEST_IMAGE (scripts/lib/docker-engine)");
        return;
    };
    let bench = Bench::new(&socket, &image, 0);
    let warm = Bench::new(&socket, &image, 1);
    // The image with the guest in it is made once.
    bench.destroy(bench.create());

    let rounds = rounds();
    let mut agt = Agt::start(&bench.host, &image);
    let (empty, full) = (Reopened::new(&bench, 0), Reopened::new(&bench, FULL));
    let mut times: [Vec<Duration>; 17] = Default::default();
    for _ in 0..rounds {
        let (id, run) = bench.docker_run();
        let exec = bench.docker(&["exec", &id, "python3", "-c", "pass"]);
        let removed = bench.docker(&["rm", "-f", &id]);
        let (session, create) = timed(|| bench.create());
        let first = bench.code(&session);
        let again = bench.code(&session);
        let (_, destroy) = timed(|| bench.destroy(session));
        let pooled = warm.first_output();
        let network = ["--network", "none"];
        let once = bench.docker(&[&["run", "--rm"], &network[..], &[&image], &PYTHON].concat());
        let run_once = bench.run_once();
        let common = [
            run,
            create,
            exec,
            again,
            removed,
            destroy,
            create + first,
            pooled,
            once,
            run_once,
            empty.live(&bench),
            full.live(&bench),
            empty.cold(&bench),
            full.cold(&bench),
        ];
        let agt = agt.as_mut().map(Agt::round).into_iter().flatten();
        for (all, took) in times.iter_mut().zip(common.into_iter().chain(agt)) {
            all.push(took);
        }
    }
    println!("\n{rounds} rounds, median and worst\n");
    let names = [
        "docker run -d",
        "create a session",
        "docker exec python3 -c pass",
        "Python code in a live session",
        "docker rm -f",
        "destroy a session",
        "create and first result",
        "the same from a warm pool",
        "docker run --rm python3 -c pass",
        "Python code in a single run",
        "code in a live one, empty",
        "the same with 100 MB",
        "open, code, close, empty",
        "the same with 100 MB",
        "AGT: create a session",
        "AGT: Python code in a live one",
        "AGT: destroy a session",
    ];
    let mut medians = Vec::new();
    for (all, name) in times.iter_mut().zip(names) {
        all.sort();
        let Some(worst) = all.last() else {
            println!("{name:<32} not measured");
            continue;
        };
        let median = all[all.len() / 2];
        println!("{name:<32} {:>8.1} ms {:>8.1} ms", ms(median), ms(*worst));
        medians.push(median);
    }
    println!();
    let ratio =
        |one: usize, other: usize| medians[one].as_secs_f64() / medians[other].as_secs_f64();
    judge("create / docker run -d", ratio(1, 0), 1.1, "x");
    match medians.len() > 14 {
        true => judge("create / AGT's", ratio(1, 14), 1.0, "x"),
        false => println!("{:<32} not judged: AGT was not measured", "create / AGT's"),
    }
    judge("Python code, live", ms(medians[3]), 13.0, "ms");
    judge("destroy", ms(medians[5]), 300.0, "ms");
    judge("first result, warm pool", ms(medians[7]), 20.0, "ms");
    judge("100 MB / empty, live", ratio(11, 10), 1.2, "x");
    judge("100 MB / empty, reopened", ratio(13, 12), 1.2, "x");
    for one in [empty, full] {
        one.remove(&bench);
    }
}

/// What a session has that is not empty.
const FULL: u64 = 100_000_000;

/// A session on disk, which every process opens with a container of its own.
struct Reopened {
    sandbox: Sandbox,
    live: Session,
    agent: AgentId,
    id: SessionId,
    _state: tempfile::TempDir,
}

impl Reopened {
    fn new(bench: &Bench, bytes: u64) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let sandbox = Sandbox::builder(Arc::clone(&bench.backend)).state_dir(state.path());
        let sandbox = sandbox.build().expect("a sandbox");
        let agent: AgentId = "bench".parse().expect("a name");
        let code = format!("import os; open('data', 'wb').write(os.urandom({bytes}))");
        let made = bench.runtime.block_on(async {
            let mut config = bench.config.clone();
            config.limits.disk_bytes = Limit::asked(1 << 30);
            config.limits.memory_bytes = Limit::asked(1 << 30);
            let made = |id: &str| {
                let id = id.parse().expect("a name");
                sandbox.create_session(&agent, Some(id), config.clone())
            };
            let (live, cold) = (made("live").await?, made("cold").await?);
            for session in [&live, &cold] {
                session
                    .execute_code(Language::Python, code.as_str())
                    .await?;
            }
            let id = cold.id().clone();
            cold.close().await?;
            Ok::<_, brig_sandbox::Error>((live, id))
        });
        let (live, id) = made.expect("two sessions");
        let reopened = Self {
            sandbox,
            live,
            agent,
            id,
            _state: state,
        };
        // The first time its files are sent to the engine, and the second time they are compared.
        for _ in 0..2 {
            reopened.cold(bench);
        }
        reopened
    }

    fn live(&self, bench: &Bench) -> Duration {
        bench.code(&self.live)
    }

    /// As `brig session exec` does it.
    fn cold(&self, bench: &Bench) -> Duration {
        let (_, took) = timed(|| {
            let opened = self.sandbox.open_session(&self.agent, &self.id);
            let session = bench.runtime.block_on(opened).expect("the session");
            bench.code(&session);
            bench.runtime.block_on(session.close()).expect("closed");
        });
        took
    }

    fn remove(self, bench: &Bench) {
        let opened = self.sandbox.open_session(&self.agent, &self.id);
        let cold = bench.runtime.block_on(opened).expect("the session");
        bench.destroy(cold);
        bench.destroy(self.live);
    }
}

const PYTHON: [&str; 3] = ["python3", "-c", "pass"];

/// A program that waits for the next round.
struct Agt {
    program: Child,
    asked: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Agt {
    /// If there is a Python that has it.
    fn start(host: &str, image: &str) -> Option<Self> {
        let python = std::env::var_os("BRIG_BENCH_AGT")?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/agt.py");
        let mut program = Command::new(python)
            .args([script, host, image])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python");
        let asked = program.stdin.take().expect("its input");
        let told = BufReader::new(program.stdout.take().expect("its output"));
        Some(Self {
            program,
            asked,
            told,
        })
    }

    fn round(&mut self) -> Vec<Duration> {
        writeln!(self.asked, "go").expect("it listens");
        let mut line = String::new();
        self.told.read_line(&mut line).expect("an answer");
        let times = line.split_whitespace().map(|word| {
            let milliseconds: f64 = word.parse().expect("a number");
            Duration::from_secs_f64(milliseconds / 1e3)
        });
        let times: Vec<Duration> = times.collect();
        assert_eq!(times.len(), 3, "{line}");
        times
    }
}

impl Drop for Agt {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

struct Bench {
    runtime: tokio::runtime::Runtime,
    backend: Arc<DockerBackend>,
    sandbox: Sandbox,
    config: SessionConfig,
    host: String,
    image: String,
}

impl Bench {
    fn new(socket: &str, image: &str, warm: usize) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let options = Options {
            address: Some(Address::Unix(socket.into())),
            warm,
            ..Options::default()
        };
        let backend = runtime.block_on(DockerBackend::connect(options));
        let backend = Arc::new(backend.expect("the engine answers"));
        let config = SessionConfig {
            options: [
                ("image".into(), image.to_owned()),
                ("runtime".into(), "runc".into()),
            ]
            .into(),
            ..SessionConfig::default()
        };
        Self {
            runtime,
            sandbox: Sandbox::builder(Arc::clone(&backend))
                .build()
                .expect("a sandbox"),
            backend,
            config,
            host: format!("unix://{socket}"),
            image: image.to_owned(),
        }
    }

    fn create(&self) -> Session {
        let agent: AgentId = "bench".parse().expect("a name");
        let config = self.config.clone();
        let created = self.sandbox.create_session(&agent, None, config);
        self.runtime.block_on(created).expect("a session")
    }

    fn code(&self, session: &Session) -> Duration {
        let request = Request::code(Language::Python, "pass");
        let (status, took) = timed(|| {
            self.runtime.block_on(async {
                let running = session.start(request).await.expect("started");
                running.wait().await.expect("a report").status()
            })
        });
        assert_eq!(status, ExecutionStatus::Completed);
        took
    }

    fn run_once(&self) -> Duration {
        let agent: AgentId = "bench".parse().expect("a name");
        let request = Request::code(Language::Python, "pass");
        let run = self.sandbox.run_once(&agent, self.config.clone(), request);
        let (report, took) = timed(|| self.runtime.block_on(run));
        assert_eq!(
            report.expect("a report").status(),
            ExecutionStatus::Completed
        );
        took
    }

    /// From a container that waits already.
    fn first_output(&self) -> Duration {
        self.destroy(self.create());
        std::thread::sleep(Duration::from_secs(1));
        let (session, took) = timed(|| self.create());
        let took = took + self.code(&session);
        self.destroy(session);
        took
    }

    fn destroy(&self, session: Session) {
        self.runtime.block_on(session.destroy()).expect("an end");
    }

    fn docker_run(&self) -> (String, Duration) {
        let began = Instant::now();
        let output = Command::new("docker")
            .args(["--host", &self.host, "run", "-d", "--network", "none"])
            .args([&self.image, "sleep", "1000"])
            .output()
            .expect("docker");
        let took = began.elapsed();
        assert!(output.status.success(), "{output:?}");
        let id = String::from_utf8(output.stdout).expect("an id");
        (id.trim().to_owned(), took)
    }

    fn docker(&self, args: &[&str]) -> Duration {
        let mut command = Command::new("docker");
        command.args(["--host", &self.host]).args(args);
        let (status, took) = timed(|| command.stdout(Stdio::null()).status().expect("docker"));
        assert!(status.success(), "{args:?}");
        took
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn judge(what: &str, value: f64, most: f64, unit: &str) {
    let verdict = if value <= most { "met" } else { "MISSED" };
    println!("{what:<32} {value:>8.2} {unit} (at most {most} {unit}): {verdict}");
}

fn rounds() -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != "--rounds").skip(1);
    args.next().and_then(|text| text.parse().ok()).unwrap_or(15)
}
