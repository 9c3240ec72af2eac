//! A root that can be written, and what is kept of it.

use std::path::Path;
use std::sync::Arc;

use crate::common::{Engine, with_option};
use brig_sandbox::{Backend, Control, Error, Sandbox, Session, SessionConfig};
use serde_json::json;

/// Of a folder of the sandbox's user, with files of root in it, and of a file of the user in a
/// folder of root.
const IMAGE: &str = "mkdir -p /data/sub /srv/roots \
    && echo image > /data/kept && echo image > /data/gone && echo image > /data/changed \
    && chown -R 65534:65534 /data \
    && echo image > /data/of-root && echo image > /data/gone-too \
    && echo secret > /data/hidden && chmod 600 /data/hidden \
    && echo image > /var/tmp/of-root && chmod 444 /var/tmp/of-root && mkdir -m 744 /srv/listed \
    && mkdir /data/shut && ln -s ../kept /data/shut/link && chown 65534 /data/shut && chmod 555 /data/shut \
    && echo image > /srv/roots/own && chown 65534 /srv/roots/own && echo image > /srv/roots/other";

const CHANGE: &str = "echo new > /data/new; echo changed > /data/changed; rm -f /data/gone /data/gone-too
    mkdir -p /data/sub/deep; echo deep > /data/sub/deep/file; ln -s kept /data/link
    ln /srv/roots/own /data/before; echo one > /workspace/one; ln /workspace/one /workspace/two
    ln /data/new /data/sub/same; chmod 640 /data/new; echo changed > /srv/roots/own; echo v > /var/tmp/v
    mkdir -m 700 /var/tmp/private; echo p > /var/tmp/private/p
    echo w > /workspace/w; echo lost > /tmp/t";

const SPOIL: &str =
    "rm -rf /data/kept /data/changed /data/sub /data/link /data/new /var/tmp/v /var/tmp/private
    echo spoilt > /srv/roots/own; echo x > /data/more; rm /workspace/w /workspace/two";

const LOOK: &str = "cd /data && stat -c '%n %U %a' * sub/* | sort; stat -c %h new; readlink shut/link
    cat kept changed new sub/deep/file sub/same link of-root /srv/roots/own /srv/roots/other
    cat /var/tmp/v /var/tmp/private/p /workspace/w /workspace/two before; stat -c %a /var/tmp/private; ls /tmp /var/tmp /srv/roots";

async fn text(session: &Session, script: &str) -> Result<String, Error> {
    let command = ["/bin/sh", "-c", script].map(str::to_owned);
    let report = session.run(command.to_vec()).await?;
    let outcome = report.outcome;
    let (out, err) = (outcome.stdout.bytes, outcome.stderr.bytes);
    Ok(String::from_utf8_lossy(&[out, err].concat()).into_owned())
}

/// Under a name of its own.
fn build(engine: &Engine, name: &str) {
    let body = json!({ "Image": engine.image, "Cmd": ["sh", "-c", IMAGE], "User": "0" });
    let id = engine.ask("/containers/create", &body)["Id"].clone();
    let id = id.as_str().expect("an id");
    engine.ask(&format!("/containers/{id}/start"), &json!({}));
    let ended = engine.ask(&format!("/containers/{id}/wait"), &json!({}));
    assert_eq!(ended["StatusCode"], 0, "{ended}");
    let image = engine.ask(&format!("/commit?container={id}"), &json!({}));
    engine.curl("DELETE", &format!("/containers/{id}"));
    tag(engine, image["Id"].as_str().expect("an id"), name);
}

fn tag(engine: &Engine, image: &str, name: &str) {
    engine.ask(&format!("/images/{image}/tag?repo={name}"), &json!({}));
}

fn sandbox(backend: &Arc<dyn Backend>, state: &Path) -> Sandbox {
    let builder = Sandbox::builder(Arc::clone(backend)).state_dir(state);
    builder.build().expect("a sandbox")
}

async fn is_kept(runtime: &str) -> Result<(), Error> {
    let Some(engine) = Engine::with(
        runtime,
        &format!("a root that can be written, on {runtime}"),
    ) else {
        return Ok(());
    };
    let image = format!("brig-test-writable-{runtime}");
    build(&engine, &image);
    let mut config = SessionConfig {
        read_only_root: false,
        ..with_option(engine.config(runtime), "image", &image)
    };
    config.waive.insert(Control::Disk);
    let backend: Arc<dyn Backend> = engine.backend().await;
    let state = tempfile::tempdir().expect("a folder");
    let here = sandbox(&backend, state.path());
    let (agent, name) = ("agent".parse()?, "one".parse()?);
    let session = here
        .create_session(&agent, Some("s".parse()?), config)
        .await?;
    let fresh = text(&session, "cat /data/* /srv/roots/* 2>&1; ls /var/tmp").await?;
    assert!(fresh.contains("hidden: Permission denied"), "{fresh}");
    assert_eq!(text(&session, CHANGE).await?, "");
    let seen = text(&session, LOOK).await?;
    assert!(seen.contains("new nobody 640\n"), "{seen}");
    assert!(seen.contains("of-root root 644\n"), "{seen}");
    assert!(seen.contains("hidden root 600\n"), "{seen}");
    assert!(!seen.contains("gone"), "{seen}");
    session.save_state(&name).await?;
    assert_eq!(text(&session, SPOIL).await?, "");
    assert_ne!(text(&session, LOOK).await?, seen, "control");
    // What is kept outside can be written by its owner in any case.
    let expected = seen
        .replace("\nt\n", "\n")
        .replace("shut nobody 555", "shut nobody 755");
    assert_ne!(expected, seen, "there was a file in /tmp");
    session.restore_state(&name).await?;
    assert_eq!(text(&session, LOOK).await?, expected, "restored");
    let fork = session.fork(&name, None).await?;
    assert_eq!(text(&fork, LOOK).await?, expected, "forked");
    // And for the next who opens it, without a saved state.
    text(&session, "echo later > /data/later; rm /data/of-root").await?;
    let later = text(&session, LOOK).await?;
    session.close().await?;
    // Another image has got the name meanwhile.
    tag(&engine, &engine.image, &image);
    let again = sandbox(&backend, state.path());
    let session = again.open_session(&agent, &"s".parse()?).await?;
    assert_eq!(text(&session, LOOK).await?, later, "opened again");
    session.destroy().await?;
    fork.destroy().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runc_keeps_what_was_written() {
    is_kept("runc").await.expect("kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crun_keeps_what_was_written() {
    is_kept("crun").await.expect("kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gvisor_keeps_what_was_written() {
    is_kept("gvisor").await.expect("kept");
}
