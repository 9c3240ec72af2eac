//! Where images come from, and what a container made of one is like from inside.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::common::{Engine, with_option};
use brig_docker::{Address, DockerBackend, Options, Progress};
use brig_sandbox::{AgentId, Backend, Error, Language, Request, Sandbox, SessionConfig};
use sha2::{Digest, Sha256};

async fn said(
    backend: Arc<dyn Backend>,
    config: SessionConfig,
    request: Request,
) -> Result<String, Error> {
    let sandbox = Sandbox::builder(backend).build()?;
    let agent = "agent".parse()?;
    let report = sandbox.run_once(&agent, config, request).await?;
    let outcome = report.outcome;
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
    let config = with_option(engine.config("runc"), "image", image);
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
        (with_option(base.clone(), "image", "../x"), "input.config"),
        (
            with_option(base.clone(), "runtime", "kata"),
            "engine.runtime",
        ),
        // A registry of this machine that is not there.
        (
            with_option(base.clone(), "image", "127.0.0.1:1/x/y:z"),
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
    let id = with_option(base.clone(), "image", format!("sha256:{}", "0".repeat(64)));
    let error = said(backend.clone(), id, Request::command(["true"])).await;
    let error = error.expect_err("no such image");
    assert_eq!(error.code(), "engine.image", "{error}");
    assert!(
        error.to_string().contains("cannot be pulled by id"),
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
        let config = with_option(engine.config("runc"), "image", name.clone());
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
    let config = with_option(engine.config("runc"), "image", missing);
    let error = said(engine.backend().await, config, Request::command(["/none"])).await;
    let error = error.expect_err("there is no such tag");
    assert_eq!(error.code(), "engine.image", "{error}");
    assert!(error.hint().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_platform_is_pulled_or_refused() {
    let Some(engine) = Engine::find("the platform of an image") else {
        return;
    };
    let registry = registry();
    let own = if cfg!(target_arch = "x86_64") {
        "linux/amd64"
    } else {
        "linux/arm64"
    };
    let name = format!("{}/brig/platform:1", registry.address);
    let config = with_option(engine.config("runc"), "image", name);
    let backend = engine.backend().await;
    for (platform, code) in [
        ("linux/s390x", "input.config"),
        ("x", "input.config"),
        // There is nothing in it to run.
        (own, "run.cannot-start"),
    ] {
        let config = with_option(config.clone(), "platform", platform);
        let error = said(backend.clone(), config, Request::command(["/none"])).await;
        let error = error.expect_err(platform);
        assert_eq!(error.code(), code, "{platform}: {error}");
    }
}

/// An image like the tests', with these settings.
fn with_settings(engine: &Engine, name: &str, settings: &serde_json::Value) -> String {
    let create = serde_json::json!({"Image": engine.image, "Cmd": ["true"]});
    let container = engine.ask("/containers/create", &create)["Id"].clone();
    let container = container.as_str().expect("an id");
    let tag = format!("brig-test-{name}");
    let made = engine.ask(
        &format!("/commit?container={container}&repo={tag}"),
        settings,
    );
    assert!(made["Id"].is_string(), "{made}");
    engine.curl("DELETE", &format!("/containers/{container}?force=true"));
    format!("{tag}:latest")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_image_says_about_its_programs_is_used_or_told() {
    let Some(engine) = Engine::find("settings of an image") else {
        return;
    };
    let settings = serde_json::json!({
        "User": "1234:56", "WorkingDir": "/usr/share", "Env": ["GREETING=hello", "LD_PRELOAD=/x.so"],
        "Entrypoint": ["/bin/false"], "Volumes": {"/data": {}},
    });
    let image = with_settings(&engine, "settings", &settings);
    // On runc a user of the image would be one of the machine.
    for (runtime, ids, lines) in [("runc", "65534 65534", 2), ("gvisor", "1234 56", 1)] {
        if Engine::with(runtime, "settings of an image").is_none() {
            continue;
        }
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let tell = move |line: &str| heard.lock().expect("lock").push(line.to_owned());
        let backend = DockerBackend::connect(Options {
            progress: Some(Progress::new(tell)),
            ..engine.options()
        });
        let backend: Arc<DockerBackend> = Arc::new(backend.await.expect("it answers"));
        let config = with_option(engine.config(runtime), "image", image.clone());
        let script = "echo $(id -u) $(id -g) $PWD $GREETING $LD_PRELOAD; touch /workspace/x /tmp/x";
        for _ in 0..2 {
            let request = Request::command(["/bin/sh", "-c", script]);
            let text = said(backend.clone(), config.clone(), request).await;
            assert_eq!(text.expect("it runs"), format!("{ids} /usr/share hello\n"));
        }
        // Code, a request that says where, and a session, whose files are in its workspace.
        let code = Request::code(Language::Bash, "echo $PWD");
        let mut elsewhere = Request::command(["/bin/sh", "-c", "echo $PWD"]);
        elsewhere.cwd = Some("/usr".into());
        for (request, cwd) in [(code, "/workspace\n"), (elsewhere, "/usr\n")] {
            let text = said(backend.clone(), config.clone(), request).await;
            assert_eq!(text.expect("it runs"), cwd);
        }
        let sandbox = Sandbox::builder(backend).build().expect("a sandbox");
        let agent: AgentId = "agent".parse().expect("a name");
        let session = sandbox.create_session(&agent, None, config.clone()).await;
        let session = session.expect("a session");
        let report = session.run(vec!["pwd".into()]).await.expect("it runs");
        assert_eq!(report.outcome.stdout.bytes, b"/workspace\n");
        session.destroy().await.expect("destroyed");
        let told = told.lock().expect("lock");
        assert_eq!(told.len(), lines, "{runtime}: {told:?}");
        let others =
            "of the image is not used: ENV LD_PRELOAD, ENTRYPOINT /bin/false, VOLUME /data";
        assert!(told.iter().any(|line| line == others), "{told:?}");
    }
    engine.curl("DELETE", &format!("/images/{image}?force=true"));
}

/// Each would be a directory of the engine without a limit, if the engine took it for another place than Brig.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_of_an_image_is_covered_whatever_it_is_called() {
    let Some(engine) = Engine::find("odd volumes of an image") else {
        return;
    };
    let odd = ["/usr/../one", "//two", "/three/", "/./four", "/five"];
    let volumes: serde_json::Map<_, _> = odd
        .iter()
        .map(|name| ((*name).to_owned(), serde_json::json!({})))
        .collect();
    let image = with_settings(
        &engine,
        "volumes",
        &serde_json::json!({ "Volumes": volumes }),
    );
    let script = "for place in one two three four five; do
        grep \" /$place \" /proc/mounts | cut -d' ' -f3 | tr '\\n' ' '
        touch /$place/made 2>/dev/null && echo \"wrote /$place\"; done; echo";
    for runtime in ["runc", "crun", "gvisor"] {
        if Engine::with(runtime, "odd volumes of an image").is_none() {
            continue;
        }
        let config = with_option(engine.config(runtime), "image", image.clone());
        let request = Request::command(["/bin/sh", "-c", script]);
        let text = said(engine.backend().await, config, request).await;
        let text = text.expect("it runs");
        let mounts = text.lines().next().unwrap_or_default().trim_end();
        assert_eq!(mounts, ["tmpfs"; 5].join(" "), "{runtime}: {text}");
    }
    engine.curl("DELETE", &format!("/images/{image}?force=true"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxy_of_an_image_is_not_the_one_that_programs_use() {
    let Some(engine) = Engine::find("the proxy of an image") else {
        return;
    };
    let settings = serde_json::json!({ "Env": ["HTTP_PROXY=http://192.0.2.1:1", "http_proxy=http://192.0.2.1:1"] });
    let image = with_settings(&engine, "proxy", &settings);
    let rule = brig_egress::Rule::parse("allowed.invalid").expect("a rule");
    let layer = brig_egress::Layer::new(brig_egress::LayerKind::Run).allow([rule]);
    let config = SessionConfig {
        network: brig_sandbox::NetworkConfig {
            open: false,
            layers: vec![layer],
        },
        ..with_option(engine.config("runc"), "image", image.clone())
    };
    let code = "
for line in sorted(open('/proc/self/environ').read().split('\\0')):
    if line.lower().startswith('http_proxy='): print(line)";
    let request = Request::code(Language::Python, code);
    let text = said(engine.backend().await, config, request).await;
    engine.curl("DELETE", &format!("/images/{image}?force=true"));
    let own = "=http://127.0.0.1:3128";
    assert_eq!(
        text.expect("it runs"),
        format!("HTTP_PROXY{own}\nhttp_proxy{own}\n")
    );
}

/// Where one of several processes finds the image.
const COLD: &str = "BRIG_TEST_COLD_IMAGE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_processes() {
    let Ok(image) = std::env::var(COLD) else {
        return;
    };
    let engine = Engine::find("one of several processes").expect("the engine of the test");
    let config = with_option(engine.config("runc"), "image", image);
    let text = said(engine.backend().await, config, Request::command(["true"])).await;
    assert_eq!(text.expect("it runs"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_need_the_same_image_at_once_make_it_once() {
    let Some(engine) = Engine::find("an image for several processes") else {
        return;
    };
    let label = uuid::Uuid::new_v4().simple().to_string();
    let settings = serde_json::json!({"Labels": {"brig.test": label}});
    let image = with_settings(&engine, "cold", &settings);
    let test = brig_testing::test_name!(one_of_several_processes);
    let processes: Vec<_> = (0..6)
        .map(|_| {
            let mut one = brig_testing::again(&test);
            one.env(COLD, &image);
            std::thread::spawn(move || brig_testing::passes(one))
        })
        .collect();
    for process in processes {
        process.join().expect("it runs");
    }
    // All that are made of it, also those that lost their names to a later one.
    let filters = format!("%7B%22label%22%3A%5B%22brig.test%3D{label}%22%5D%7D");
    let listed = engine.curl("GET", &format!("/images/json?filters={filters}"));
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("a list");
    let names = listed.as_array().expect("a list").iter();
    let mut names: Vec<_> = names.map(|one| one["RepoTags"].to_string()).collect();
    names.sort();
    assert_eq!(names.len(), 2, "it and one with the guest: {names:?}");
    assert!(names[0].contains("brig-derived:"), "{names:?}");
    assert!(names[1].contains("brig-test-cold:"), "{names:?}");
    engine.curl("DELETE", &format!("/images/{image}?force=true"));
}
