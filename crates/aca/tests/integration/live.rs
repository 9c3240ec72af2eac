//! A test on Azure itself, for who has an account: costs a few cents, and deletes what it creates. The same
//! checks run against the stand-in, so that they work when somebody has one.

use std::pin::Pin;
use std::sync::Arc;

use brig_aca::{AcaBackend, Options};
use brig_audit::{Event, MemoryLog};
use brig_sandbox::{Backend, BackendId, Language, Sandbox, Session};
use serde_json::json;

use crate::create::{text, with_host};
use crate::stand_in::StandIn;

/// Without all of these it is skipped.
const VARIABLES: [&str; 4] = [
    "AZURE_SUBSCRIPTION_ID",
    "ACA_RESOURCE_GROUP",
    "ACA_SANDBOX_GROUP",
    "ACA_REGION",
];

const ALLOWED: &str = "www.python.org";
const DENIED: &str = "example.com";

type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;
type Check = fn(Arc<Session>, Arc<MemoryLog>) -> Ended;

/// In this order. The list of what is skipped is made from it.
const CHECKS: [(&str, Check); 9] = [
    ("the egress policy as it is read back", |session, _| {
        // Otherwise the sandbox is deleted before this runs.
        Box::pin(async move { assert_eq!(text(&session, "echo one").await.unwrap(), "one\n") })
    }),
    ("a host that is denied", |session, _| {
        Box::pin(async move { is_denied(&session, DENIED, 80).await })
    }),
    ("denied TCP ports", |session, _| {
        Box::pin(async move {
            is_denied(&session, "1.1.1.1", 53).await;
            is_denied(&session, "github.com", 22).await;
        })
    }),
    ("decisions about hosts", |session, log| {
        Box::pin(async move {
            // What the service lists late is recorded with the next execution.
            text(&session, "sleep 2").await.unwrap();
            let all: Vec<_> = log.records().into_iter().map(|one| one.event).collect();
            let denied = |event: &Event| match event {
                Event::EgressDecided(egress) => egress.host == DENIED && !egress.allowed,
                _ => false,
            };
            assert!(all.iter().any(denied), "{all:?}");
        })
    }),
    (NEEDS_A_NETWORK, |session, _| {
        Box::pin(async move {
            let said = python(&session, &reach(ALLOWED, 80)).await;
            assert!(said.contains("HTTP/1."), "{said}");
        })
    }),
    ("DNS", |session, _| {
        Box::pin(async move {
            let lookup = format!(
                "import socket\ntry:\n    print(socket.gethostbyname('{DENIED}'))\n\
                 except OSError as e:\n    print('failed', e)"
            );
            // Not known, and no promise.
            println!("DNS: {}", python(&session, &lookup).await);
        })
    }),
    ("exit codes", |session, _| {
        Box::pin(async move {
            let code = "raise SystemExit(7)";
            let failed = session.execute_code(Language::Python, code).await.unwrap();
            assert_eq!(failed.outcome.exit_code, 7);
        })
    }),
    ("files in, out and listed", |session, _| {
        Box::pin(async move {
            let bytes: Vec<u8> = (0..=255).collect();
            session.upload("data", 0o640, &bytes[..]).await.unwrap();
            let mut back = Vec::new();
            session.download("data", &mut back).await.unwrap();
            assert_eq!(back, bytes);
            let all = session.list_files(".").await.unwrap();
            let found = all.iter().find(|one| one.name == "data").unwrap();
            assert_eq!((found.size, found.mode), (256, 0o640));
        })
    }),
    ("a snapshot and its restoration", |session, _| {
        Box::pin(async move {
            let name = "before".parse().unwrap();
            text(&session, "echo kept > file").await.unwrap();
            session.save_state(&name).await.unwrap();
            text(&session, "echo changed > file").await.unwrap();
            session.restore_state(&name).await.unwrap();
            assert_eq!(text(&session, "cat file").await.unwrap(), "kept\n");
        })
    }),
];
const NEEDS_A_NETWORK: &str = "a host that is allowed";

async fn python(session: &Session, code: &str) -> String {
    let report = session.execute_code(Language::Python, code).await.unwrap();
    String::from_utf8_lossy(&report.outcome.stdout.bytes).into_owned()
}

fn reach(host: &str, port: u16) -> String {
    format!(
        "import socket\nsocket.setdefaulttimeout(10)\ntry:\n    s = socket.create_connection(('{host}', {port}))\n    \
         s.sendall(b'GET / HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n')\n    print(s.recv(64))\nexcept OSError as e:\n    print('failed', e)"
    )
}

async fn is_denied(session: &Session, host: &str, port: u16) {
    let said = python(session, &reach(host, port)).await;
    let denied = said.starts_with("failed") || said.contains(" 403 ");
    assert!(denied, "{host}:{port}: {said}");
}

/// Whatever becomes of the checks, the sandbox is deleted and gone, and so are its snapshots.
async fn checked(backend: Arc<dyn Backend>, checks: Vec<Check>) {
    let (log, state) = (
        Arc::new(MemoryLog::new(10_000)),
        tempfile::tempdir().unwrap(),
    );
    let builder = Sandbox::builder(backend)
        .recorder(log.clone())
        .state_dir(state.path());
    let sandbox = builder.build().unwrap();
    let agent = "agent".parse().unwrap();
    let created = sandbox.create_session(&agent, None, with_host(ALLOWED));
    let session = Arc::new(created.await.unwrap());
    // A panic stays in its task.
    let own = session.clone();
    let ended = tokio::spawn(async move {
        for check in checks {
            check(own.clone(), log.clone()).await;
        }
    });
    let ended = ended.await;
    let destroyed = session.destroy().await;
    if let Err(error) = ended {
        eprintln!("the session was destroyed: {destroyed:?}");
        std::panic::resume_unwind(error.into_panic());
    }
    destroyed.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn on_azure() {
    let set = |name: &&str| std::env::var(name).is_ok_and(|value| !value.is_empty());
    if !VARIABLES.iter().all(set) || std::env::var_os("BRIG_TEST_AZURE").is_none() {
        let why = format!(
            "no Azure (set BRIG_TEST_AZURE and {}); it would check: {}, and that nothing is left",
            VARIABLES.join(", "),
            CHECKS.map(|(name, _)| name).join(", ")
        );
        brig_testing::skip(&brig_testing::test_name!(), &why);
        return;
    }
    let options = Options::configured(BackendId::of("aca"), &Default::default()).unwrap();
    let checks = CHECKS.map(|(_, check)| check).to_vec();
    checked(Arc::new(AcaBackend::new(options)), checks).await;
}

#[tokio::test]
async fn the_checks_work_where_they_can_be_tried() {
    let stand_in = StandIn::start().await;
    stand_in.state().decisions["denied"] = json!([{"timestamp": "t", "host": DENIED}]);
    let checks = CHECKS.iter().filter(|(name, _)| *name != NEEDS_A_NETWORK);
    let checks: Vec<Check> = checks.map(|(_, check)| *check).collect();
    assert_eq!(checks.len(), CHECKS.len() - 1, "control");
    checked(Arc::new(stand_in.backend()), checks).await;
    assert!(stand_in.count("snapshot") > 0, "control");
    assert!(stand_in.state().snapshots.is_empty());
    stand_in.check_clean();
}

#[tokio::test]
async fn a_check_that_fails_leaves_nothing() {
    let stand_in = StandIn::start().await;
    let fails: Check = |session, _| {
        Box::pin(async move {
            text(&session, "echo kept > file").await.unwrap();
            panic!("as it should");
        })
    };
    let backend = Arc::new(stand_in.backend());
    let ended = tokio::spawn(checked(backend, vec![fails])).await;
    assert!(ended.unwrap_err().is_panic());
    assert_eq!((stand_in.count("create"), stand_in.count("delete")), (1, 1));
    assert!(stand_in.state().snapshots.is_empty());
    stand_in.check_clean();
}
