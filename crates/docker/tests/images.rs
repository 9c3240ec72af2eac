//! Where images come from, and what a container made of one is like from inside.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use brig_docker::{Address, DockerBackend, Options, Progress};
use brig_sandbox::{Backend, Error, Language, Request, Sandbox, SessionConfig};
use common::Engine;
use sha2::{Digest, Sha256};

async fn said(
    backend: Arc<dyn Backend>,
    config: SessionConfig,
    request: Request,
) -> Result<String, Error> {
    let sandbox = Sandbox::builder(backend).build()?;
    let agent = "agent".parse()?;
    let report = sandbox.run_once(&agent, config, request).await?;
    let outcome = report.outcome.expect("an outcome");
    let (out, err) = (outcome.stdout.bytes, outcome.stderr.bytes);
    Ok(String::from_utf8_lossy(&[out, err].concat()).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_needs_nothing_but_the_program() {
    let Some(engine) = Engine::find("an image with busybox alone") else {
        return;
    };
    let Some(image) = std::env::var("BRIG_TEST_SMALL_IMAGE")
        .ok()
        .filter(|name| !name.is_empty())
    else {
        return brig_testing::skip("an image with busybox alone", "busybox is not static here");
    };
    let config = SessionConfig {
        image: Some(image),
        ..engine.config("runc")
    };
    let backend = engine.backend().await;
    let text = said(
        backend.clone(),
        config.clone(),
        Request::command(["busybox", "id", "-u"]),
    )
    .await;
    assert_eq!(text.expect("it runs"), "65534\n");
    let error = said(backend, config, Request::code(Language::Python, "1")).await;
    assert_eq!(
        error.expect_err("there is no Python").code(),
        "run.no-interpreter"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_has_no_rights_and_sees_nothing_of_the_host() {
    let Some(engine) = Engine::find("a container from inside") else {
        return;
    };
    let script = r"
        grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t' | tr '\n' ' '; echo
        cut -d: -f1 /proc/net/dev | sed 1,2d | tr -d ' '
        ls /var/run/docker.sock /run/docker.sock 2>/dev/null
        touch /usr/x /etc/x /.brig/x 2>/dev/null && echo written
        for f in /proc/sysrq-trigger /sys/kernel/mm/x; do (echo b > $f) 2>/dev/null && echo wrote $f; done
        ulimit -c; cat /proc/1/environ 2>/dev/null
        echo end";
    let text = said(
        engine.backend().await,
        engine.config("runc"),
        Request::command(["/bin/sh", "-c", script]),
    )
    .await;
    let text = text.expect("it runs");
    let rights = "CapBnd:0000000000000000 CapEff:0000000000000000 NoNewPrivs:1 Seccomp:2";
    let mut found: Vec<&str> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    found.sort_unstable();
    assert_eq!(found.join(" "), rights, "{text}");
    let rest: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(rest, ["lo", "0", "end"], "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_means_nothing_here_is_refused() {
    let Some(engine) = Engine::find("configs that mean nothing") else {
        return;
    };
    let backend = engine.backend().await;
    let base = engine.config("runc");
    for (config, code) in [
        (
            SessionConfig {
                rootfs: Some("/".into()),
                ..base.clone()
            },
            "input.config",
        ),
        (
            SessionConfig {
                python: Some("/usr/bin/python3".into()),
                ..base.clone()
            },
            "input.config",
        ),
        (
            SessionConfig {
                image: Some("../x".into()),
                ..base.clone()
            },
            "input.config",
        ),
        (
            SessionConfig {
                runtime: Some("kata".into()),
                ..base.clone()
            },
            "engine.runtime",
        ),
        // A registry of this machine that is not there.
        (
            SessionConfig {
                image: Some("127.0.0.1:1/x/y:z".into()),
                ..base.clone()
            },
            "engine.image",
        ),
        (
            SessionConfig {
                read_only_root: false,
                ..base.clone()
            },
            "policy.unenforceable",
        ),
    ] {
        let error = said(backend.clone(), config, Request::command(["true"])).await;
        let error = error.expect_err(code);
        assert_eq!(error.code(), code, "{error}");
    }
    // Nobody is asked for an id: it would be the name of somebody's repository there.
    let id = SessionConfig {
        image: Some(format!("sha256:{}", "0".repeat(64))),
        ..base.clone()
    };
    let error = said(backend.clone(), id, Request::command(["true"])).await;
    let error = error.expect_err("no such image");
    assert_eq!(error.code(), "engine.image", "{error}");
    assert!(
        error.to_string().contains("an id can't be fetched"),
        "{error}"
    );
    said(backend, base, Request::command(["true"]))
        .await
        .expect("control");
}

/// An engine elsewhere has other files, and all the rest works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_may_be_behind_tls() {
    let Some(engine) = Engine::find("an engine behind TLS") else {
        return;
    };
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(host), Some(keys)) = (
        given("BRIG_TEST_DOCKER_TLS"),
        given("BRIG_TEST_DOCKER_KEYS"),
    ) else {
        return brig_testing::skip("an engine behind TLS", "the engine has no such port");
    };
    let keys = std::path::PathBuf::from(keys);
    let connect = |address| {
        DockerBackend::connect(Options {
            address: Some(address),
            ..Options::default()
        })
    };
    let with = |who: &str| Address::Tls {
        host: host.clone(),
        keys: keys.join(who),
    };
    let backend = connect(with("client")).await.expect("it answers");
    let request = Request::code(Language::Python, "print(6 * 7)");
    let text = said(Arc::new(backend), engine.config("runc"), request).await;
    assert_eq!(text.expect("it runs"), "42\n");
    for stranger in [with("stranger"), Address::Tcp(host.clone())] {
        let refused = connect(stranger.clone()).await.expect_err("a stranger");
        assert_eq!(
            refused.code(),
            "engine.unreachable",
            "{stranger:?}: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_may_be_elsewhere() {
    let Some(engine) = Engine::find("an engine over TCP") else {
        return;
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let socket = engine.socket.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut engine = tokio::net::UnixStream::connect(&socket)
                .await
                .expect("the engine");
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
            });
        }
    });
    let options = Options {
        address: Some(Address::Tcp(address)),
        ..Options::default()
    };
    let backend = Arc::new(DockerBackend::connect(options).await.expect("it answers"));
    let config = engine.config("runc");
    let text = said(
        backend.clone(),
        config.clone(),
        Request::code(Language::Python, "print(6 * 7)"),
    )
    .await;
    assert_eq!(text.expect("it runs"), "42\n");
    let folder = tempfile::tempdir().expect("folder");
    let mount = brig_sandbox::config::MountSpec {
        source: folder.path().canonicalize().expect("a path"),
        target: "/data".into(),
        writable: false,
    };
    let config = SessionConfig {
        mounts: vec![mount],
        ..config
    };
    let error = said(backend, config, Request::command(["true"]))
        .await
        .expect_err("other files");
    assert_eq!(error.code(), "input.mount", "{error}");
}

/// Just enough of a registry to hold one image.
struct Registry {
    address: String,
    digest: String,
}

fn registry() -> Registry {
    let digest = |bytes: &[u8]| {
        let hex: String = Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("sha256:{hex}")
    };
    // An archive with nothing in it.
    let layer = vec![0; 1024];
    let architecture = if cfg!(target_arch = "x86_64") {
        "amd64"
    } else {
        "arm64"
    };
    let config = serde_json::json!({
        "architecture": architecture, "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    })
    .to_string()
    .into_bytes();
    let kind = "application/vnd.docker.distribution.manifest.v2+json";
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": kind,
        "config": { "mediaType": "application/vnd.docker.container.image.v1+json", "size": config.len(), "digest": digest(&config) },
        "layers": [{ "mediaType": "application/vnd.docker.image.rootfs.diff.tar", "size": layer.len(), "digest": digest(&layer) }],
    })
    .to_string()
    .into_bytes();
    let name = digest(&manifest);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let manifest_digest = name.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n")
                && stream.read(&mut byte).is_ok_and(|count| count > 0)
            {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (kind, body) = if path == "/v2/" {
                ("application/json", b"{}".to_vec())
            } else if path.contains("/manifests/")
                && (path.ends_with(":1")
                    || path.ends_with("/1")
                    || path.ends_with(&manifest_digest))
            {
                (kind, manifest.clone())
            } else if path.ends_with(&digest(&config)) {
                ("application/octet-stream", config.clone())
            } else if path.ends_with(&digest(&layer)) {
                ("application/octet-stream", layer.clone())
            } else {
                let _ = stream.write_all(
                    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                continue;
            };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
                 Docker-Distribution-Api-Version: registry/2.0\r\nConnection: close\r\n\r\n",
                body.len(),
                digest(&body),
            );
            let _ = stream.write_all(answer.as_bytes());
            if !head.starts_with("HEAD") {
                let _ = stream.write_all(&body);
            }
        }
    });
    Registry {
        address,
        digest: name,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_fetched_by_tag_and_by_digest() {
    let Some(engine) = Engine::find("fetching an image") else {
        return;
    };
    let registry = registry();
    for name in [
        format!("{}/brig/nothing:1", registry.address),
        format!("{}/brig/other@{}", registry.address, registry.digest),
    ] {
        let lines = Arc::new(Mutex::new(Vec::<String>::new()));
        let told = Arc::clone(&lines);
        let options = Options {
            progress: Some(Progress::new(move |line| {
                told.lock().expect("lock").push(line.into())
            })),
            ..engine.options()
        };
        let backend = Arc::new(DockerBackend::connect(options).await.expect("it answers"));
        let config = SessionConfig {
            image: Some(name.clone()),
            ..engine.config("runc")
        };
        // There is nothing in it to run, which is found out inside.
        let error = said(backend.clone(), config.clone(), Request::command(["/none"])).await;
        assert_eq!(
            error.expect_err("nothing is in it").code(),
            "run.cannot-start",
            "{name}"
        );
        let fetched = lines.lock().expect("lock").len();
        assert!(fetched > 1, "{name}: {fetched} lines of progress");
        let again = said(backend, config, Request::command(["/none"])).await;
        assert_eq!(
            again.expect_err("nothing is in it").code(),
            "run.cannot-start"
        );
        assert_eq!(
            lines.lock().expect("lock").len(),
            fetched,
            "it is fetched once"
        );
    }
    let missing = format!("{}/brig/nothing:2", registry.address);
    let config = SessionConfig {
        image: Some(missing),
        ..engine.config("runc")
    };
    let error = said(engine.backend().await, config, Request::command(["/none"])).await;
    let error = error.expect_err("there is no such tag");
    assert_eq!(error.code(), "engine.image", "{error}");
    assert!(error.hint().is_some());
}
