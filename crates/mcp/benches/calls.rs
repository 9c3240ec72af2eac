//! What the protocol costs: `run_code` in a session through the server, beside the same execution through the
//! library. Each round runs both once, so that whatever else the machine does meets both alike.
//!
//!     cargo bench -p brig-mcp                     the difference
//!     cargo bench -p brig-mcp -- --rounds 50      quicker

use std::sync::Arc;
use std::time::{Duration, Instant};

use brig_mcp::Setup;
use brig_native::NativeBackend;
use brig_sandbox::{InitialState, Language, Plan, Sandbox, SessionConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio_util::sync::CancellationToken;

const MOST: Duration = Duration::from_millis(1);
const CODE: &str = ":";

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(compare(rounds()));
}

async fn compare(rounds: usize) {
    let (sandbox, config) = (sandbox(), SessionConfig::default());
    let agent = "bench".parse().expect("a name");
    let direct = sandbox
        .create_session(&agent, None, config.clone())
        .await
        .expect("a session");
    let plan = Plan::make(&config, sandbox.backend().as_ref(), InitialState::Empty).await;
    let setup = Setup {
        sandbox,
        agent,
        config,
        plan: plan.expect("a plan"),
        facts: Default::default(),
        idle: Duration::from_secs(3600),
        shown: 32 * 1024,
        denials: |_| json!([]),
        operator: None,
        version: "bench".into(),
    };
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (read, write) = tokio::io::split(theirs);
    let server = tokio::spawn(brig_mcp::serve(
        setup,
        read,
        write,
        CancellationToken::new(),
    ));
    let mut client = Client::new(ours);
    client.handshake().await;

    let mut times: [Vec<Duration>; 2] = Default::default();
    for round in 0..rounds + 5 {
        let began = Instant::now();
        let report = direct.execute_code(Language::Bash, CODE).await;
        let library = began.elapsed();
        assert!(report.expect("a report").outcome.success());
        let began = Instant::now();
        let answer = client.call(round).await;
        let through = began.elapsed();
        assert_eq!(
            answer["result"]["structuredContent"]["exit_code"], 0,
            "{answer}"
        );
        if round >= 5 {
            times[0].push(library);
            times[1].push(through);
        }
    }
    direct.destroy().await.expect("an end");
    drop(client);
    server.await.expect("a server").expect("an end");

    let [library, through] = times.map(median);
    let added = through.saturating_sub(library);
    println!("\n{rounds} interleaved rounds of bash in a session, medians\n");
    println!("library       {library:>10.1?}");
    println!("through MCP   {through:>10.1?}");
    println!("added         {added:>10.1?}   at most {MOST:?}");
    assert!(added <= MOST, "the protocol costs too much");
}

fn sandbox() -> Sandbox {
    Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .expect("a sandbox")
}

/// Lines of JSON, as a client writes them.
struct Client {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
}

impl Client {
    fn new(stream: DuplexStream) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self {
            read: BufReader::new(read),
            write,
        }
    }

    async fn handshake(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        });
        self.request("initialize", 0, params).await;
    }

    async fn call(&mut self, id: usize) -> Value {
        let arguments = json!({"code": CODE, "language": "bash", "session": "bench"});
        self.request(
            "tools/call",
            id + 1,
            json!({"name": "run_code", "arguments": arguments}),
        )
        .await
    }

    async fn request(&mut self, method: &str, id: usize, params: Value) -> Value {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let line = format!("{line}\n");
        self.write
            .write_all(line.as_bytes())
            .await
            .expect("written");
        let mut answer = String::new();
        self.read.read_line(&mut answer).await.expect("read");
        serde_json::from_str(&answer).expect("JSON")
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn rounds() -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != "--rounds");
    let given = args.nth(1).and_then(|rounds| rounds.parse().ok());
    given.unwrap_or(300)
}
