//! A stand-in for the service on the wire, over TLS. It checks every request against the recording, keeps
//! state, and runs commands in a sandbox of this machine. Its answers come from specifications and notes, not
//! from Azure.

mod machine;
mod recorded;
mod service;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use brig_aca::{AcaBackend, Options, Timing, Token, TokenSource};
use brig_sandbox::BackendId;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use machine::Machine;

pub(crate) const TOKEN: &str = "static-token";

/// What it does instead of what it should, to the next requests of one kind.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Answers with this status and title, and does nothing.
    Status(u16, &'static str),
    /// Does nothing, and answers that the request may come again after so many seconds.
    TooMany(u64),
    /// Does nothing, and never answers.
    Hang,
    /// Does it, and closes the connection without an answer.
    Lost,
    /// Does it, and then answers with this status.
    DoneBut(u16),
    /// Does nothing, and answers with this.
    Answer(Value),
}

pub(crate) type Change = fn(&mut Value);

#[derive(Debug)]
struct PlannedFault {
    kind: &'static str,
    /// So many requests of the kind are answered as they should be before.
    after: usize,
    fault: Fault,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    faults: Vec<PlannedFault>,
    /// Every request that was delivered.
    pub log: Vec<&'static str>,
    /// When it was, and its path with its query.
    pub requests: Vec<(Instant, String)>,
    /// Every list is empty and goes on there; `{n}` is a number that is never the same.
    pub next_link: Option<String>,
    /// Where lists go on, as they were told to the client.
    links: HashSet<String>,
    /// What is wrong with requests.
    pub violations: Vec<String>,
    pub scopes: Vec<String>,
    pub sandboxes: HashMap<String, Entry>,
    pub snapshots: HashMap<String, (Value, Arc<TempDir>)>,
    pub group: Option<Value>,
    /// Changes what a sandbox is when it is created.
    pub on_create: Option<Change>,
    /// Changes what is told of a sandbox.
    pub on_read: Option<Change>,
    pub decisions: Value,
    created: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub value: Value,
    machine: Arc<Machine>,
}

#[derive(Clone, Debug)]
pub(crate) struct StandIn(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    folder: TempDir,
    port: u16,
}

#[derive(Debug)]
struct Static(StandIn);

#[async_trait]
impl TokenSource for Static {
    async fn token(&self, scope: &str) -> Result<Token, String> {
        self.0.state().scopes.push(scope.to_owned());
        let hour = Duration::from_secs(3600);
        Ok(Token::new(TOKEN, SystemTime::now() + hour))
    }
}

impl StandIn {
    pub(crate) async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(
                vec![certified.cert.der().clone()],
                PrivateKeyDer::Pkcs8(key),
            )
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), certified.cert.pem()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            group: Some(serde_json::json!({"properties": {"provisioningState": "Succeeded"}})),
            decisions: serde_json::json!({"allowed": [], "denied": []}),
            ..State::default()
        };
        let stand_in = Self(Arc::new(Inner {
            state: Mutex::new(state),
            folder,
            port,
        }));
        let own = stand_in.clone();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, own) = (acceptor.clone(), own.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(|request| own.answer(request));
                    let io = TokioIo::new(stream);
                    // A client that goes away is none of its business.
                    let _ = http1::Builder::new().serve_connection(io, service).await;
                });
            }
        });
        stand_in
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// The next request of this kind is answered like that.
    pub(crate) fn fail(&self, kind: &'static str, fault: Fault) {
        self.fail_after(kind, 0, fault);
    }

    /// So many requests of this kind are answered as they should be, then one like that.
    pub(crate) fn fail_after(&self, kind: &'static str, after: usize, fault: Fault) {
        let planned = PlannedFault { kind, after, fault };
        self.state().faults.push(planned);
    }

    /// From now on everything is answered as it should be.
    pub(crate) fn forget_faults(&self) {
        self.state().faults.clear();
    }

    /// The address of a list of the service.
    pub(crate) fn list_url(&self, query: &str) -> String {
        let path = "/subscriptions/sub-1/resourceGroups/rg-1/sandboxGroups/group-1/sandboxes";
        format!("https://localhost:{}{path}?{query}", self.0.port)
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.state().log.iter().filter(|one| **one == kind).count()
    }

    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        let url = format!("https://localhost:{}", self.0.port);
        let pem = self.0.folder.path().join("ca.pem");
        let all = [
            ("subscription", "sub-1"),
            ("resource-group", "rg-1"),
            ("sandbox-group", "group-1"),
            ("endpoint", &url),
            ("scope", "api://stand-in/.default"),
            ("arm-endpoint", &url),
            ("arm-scope", "api://arm/.default"),
            ("ca-file", pem.to_str().unwrap()),
        ];
        all.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    pub(crate) fn backend(&self) -> AcaBackend {
        self.backend_with(&[])
    }

    /// One that does not wait long for an answer, though longer than the stand-in needs for one.
    pub(crate) fn impatient_backend(&self) -> AcaBackend {
        let (request, slow) = (Duration::from_secs(15), Duration::from_secs(30));
        self.open(&[], request, slow, Duration::from_secs(60))
    }

    /// One that tries everything once.
    pub(crate) fn hasty_backend(&self) -> AcaBackend {
        let minute = Duration::from_secs(60);
        self.open(&[], minute, minute, Duration::ZERO)
    }

    pub(crate) fn backend_with(&self, more: &[(&str, &str)]) -> AcaBackend {
        let minute = Duration::from_secs(60);
        self.open(more, minute, minute, minute)
    }

    fn open(
        &self,
        more: &[(&str, &str)],
        request: Duration,
        slow: Duration,
        settle: Duration,
    ) -> AcaBackend {
        let mut settings = self.settings();
        settings.extend(
            more.iter()
                .map(|(name, value)| ((*name).into(), (*value).into())),
        );
        let options = Options::configured(BackendId::of("aca"), &settings).unwrap();
        let timing = Timing {
            request,
            slow_request: slow,
            retry: Duration::from_millis(10),
            poll: Duration::from_millis(20),
            settle,
            lookup: Duration::from_secs(2),
            new_group: Duration::from_secs(60),
        };
        AcaBackend::new(
            options
                .with_tokens(Arc::new(Static(self.clone())))
                .with_timing(timing),
        )
    }

    /// All sandboxes are suspended by the service.
    pub(crate) fn suspend(&self) {
        for entry in self.state().sandboxes.values_mut() {
            entry.value["state"] = "Stopped".into();
        }
    }

    /// No request was wrong, and no sandbox is left.
    pub(crate) fn check_clean(&self) {
        let state = self.state();
        assert!(state.violations.is_empty(), "{:?}", state.violations);
        assert!(
            state.sandboxes.is_empty(),
            "left: {:?}",
            state.sandboxes.keys()
        );
    }

    async fn answer(
        &self,
        request: hyper::Request<hyper::body::Incoming>,
    ) -> Result<hyper::Response<Full<Bytes>>, std::io::Error> {
        let answer: Result<_, Infallible> = Ok(service::answer(self, request).await);
        match answer {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(std::io::Error::other("the connection is closed")),
        }
    }
}
