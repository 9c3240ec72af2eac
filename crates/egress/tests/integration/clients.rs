//! Programs that people use, through the proxy: they work with what is allowed, and show the denial
//! of what is not.

use std::fs;
use std::process::{Command, Output};

use crate::common::server::{Identity, Server};
use crate::common::{Lab, PUBLIC, allowing};
use brig_testing::skip;
use tempfile::TempDir;

struct Outside {
    lab: Lab,
    folder: TempDir,
    web: Server,
    _tls: Server,
}

/// `good.example` with HTTP and HTTPS, and `files.example` with the files of a folder.
fn outside() -> Outside {
    let identity = Identity::new(&["good.example"]);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("ca.pem"), &identity.pem).expect("written");
    fs::create_dir(folder.path().join("files")).expect("made");
    let (web, tls) = (Server::plain(), Server::tls(&identity));
    let files = Server::files(folder.path().join("files"));
    let lab = Lab::new(allowing(&["good.example", "files.example:8000"]));
    lab.name("good.example", &[PUBLIC])
        .name("files.example", &[PUBLIC]);
    lab.route(PUBLIC, 80, web.address)
        .route(PUBLIC, 443, tls.address)
        .route(PUBLIC, 8000, files.address);
    Outside {
        lab,
        folder,
        web,
        _tls: tls,
    }
}

impl Outside {
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a program as it would run in the sandbox. None if it is not installed.
    fn run(&self, program: &str, arguments: &[&str]) -> Option<Output> {
        let proxy = format!("http://{}", self.lab.proxy);
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear();
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.folder.path());
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            command.env(name, &proxy);
        }
        for name in [
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
            "NODE_EXTRA_CA_CERTS",
            "GIT_SSL_CAINFO",
        ] {
            command.env(name, self.folder.path().join("ca.pem"));
        }
        command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0");
        match command.output() {
            Ok(output) => Some(output),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                skip(&format!("clients/{program}"), "it is not installed");
                None
            }
            Err(error) => panic!("{program}: {error}"),
        }
    }
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

#[track_caller]
fn good(output: &Output, said: &str) {
    assert!(
        output.status.success() && text(output).contains(said),
        "{}",
        text(output)
    );
}

#[track_caller]
fn bad(output: &Output, said: &str) {
    assert!(
        !output.status.success() && text(output).contains(said),
        "{}",
        text(output)
    );
}

const DENIED: &str =
    "is denied: no rule allows it; `brig sandbox allow bad.example` would allow it";

#[test]
fn curl() {
    let outside = outside();
    let ca = outside.path("ca.pem");
    let Some(plain) = outside.run("curl", &["-sS", "http://good.example/a"]) else {
        return;
    };
    good(&plain, "hello /a");
    let run = |arguments: &[&str]| outside.run("curl", arguments).expect("installed");
    good(
        &run(&["-sS", "--cacert", &ca, "https://good.example/b"]),
        "hello /b",
    );
    let old = run(&[
        "-sS",
        "--tls-max",
        "1.2",
        "--cacert",
        &ca,
        "https://good.example/old",
    ]);
    good(&old, "hello /old");
    let socks = format!("socks5h://{}", outside.lab.proxy);
    good(
        &run(&["-sS", "-x", &socks, "http://good.example/c"]),
        "hello /c",
    );
    good(
        &run(&[
            "-sS",
            "-x",
            &socks,
            "--cacert",
            &ca,
            "https://good.example/d",
        ]),
        "hello /d",
    );
    good(&run(&["-sS", "-p", "http://good.example/e"]), "hello /e");
    let upload = run(&["-sS", "-d", "some data", "http://good.example/f"]);
    good(&upload, "hello /f");

    let denied = run(&["-sS", "-i", "http://bad.example/"]);
    good(&denied, DENIED);
    good(&denied, "x-brig-reason: network.no-rule");
    bad(&run(&["-sS", "https://bad.example/"]), "403");
    good(
        &run(&["-sS", "-v", "-o", "/dev/null", "http://bad.example/"]),
        "network.no-rule",
    );
    let denied = run(&["-sS", "-x", &socks, "http://bad.example/"]);
    assert!(!denied.status.success(), "{}", text(&denied));
    bad(
        &run(&["-sSL", "-f", "http://good.example/redirect/bad.example/"]),
        "403",
    );
    // Another name in TLS than in CONNECT.
    let connect_to = [
        "-sS",
        "--connect-to",
        "evil.io:443:good.example:443",
        "-k",
        "https://evil.io/",
    ];
    let fronted = run(&connect_to);
    assert!(!fronted.status.success(), "{}", text(&fronted));
    assert!(
        outside
            .lab
            .last_denial()
            .contains("its TLS server name (SNI) is `evil.io`")
    );
}

#[test]
fn wget() {
    let outside = outside();
    let Some(plain) = outside.run("wget", &["-qO-", "http://good.example/a"]) else {
        return;
    };
    good(&plain, "hello /a");
    let ca = format!("--ca-certificate={}", outside.path("ca.pem"));
    let tls = outside
        .run("wget", &["-qO-", &ca, "https://good.example/b"])
        .expect("installed");
    good(&tls, "hello /b");
    let denied = outside.run(
        "wget",
        &["-qO-", "-S", "--content-on-error", "http://bad.example/"],
    );
    let denied = denied.expect("installed");
    bad(&denied, DENIED);
    bad(&denied, "x-brig-reason: network.no-rule");
}

#[test]
fn git() {
    let outside = outside();
    let folder = outside.folder.path();
    let source = folder.join("source");
    fs::create_dir(&source).expect("made");
    fs::write(source.join("README"), "cloned through the gateway\n").expect("written");
    let bare = folder.join("files/repo.git").display().to_string();
    let git = |arguments: &[&str]| {
        let ran = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
            .args(arguments)
            .current_dir(&source)
            .env("HOME", folder)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output();
        ran.is_ok_and(|output| output.status.success())
    };
    if !git(&["init", "-q"]) {
        return skip("clients/git", "it is not installed");
    }
    assert!(git(&["add", "."]) && git(&["commit", "-qm", "first"]));
    assert!(git(&["clone", "-q", "--bare", ".", &bare]));
    assert!(git(&["-C", &bare, "update-server-info"]));
    let cloned = outside.run(
        "git",
        &["clone", "-q", "http://files.example:8000/repo.git", "copy"],
    );
    good(&cloned.expect("installed"), "");
    let read = fs::read_to_string(folder.join("copy/README")).expect("cloned");
    assert_eq!(read, "cloned through the gateway\n");
    let denied = outside.run("git", &["clone", "-q", "http://bad.example/repo.git"]);
    bad(&denied.expect("installed"), "403");
}

#[test]
fn python_urllib() {
    let outside = outside();
    let script = "import sys, urllib.request, urllib.error\n\
        try:\n    print(urllib.request.urlopen(sys.argv[1]).read().decode())\n\
        except urllib.error.HTTPError as e:\n    print(e.code, e.headers['x-brig-reason'], e.read().decode())\n\
        except Exception as e:\n    print(e)\n";
    let run = |url: &str| {
        outside
            .run("/usr/bin/python3", &["-c", script, url])
            .expect("installed")
    };
    good(&run("http://good.example/a"), "hello /a");
    good(&run("https://good.example/b"), "hello /b");
    good(
        &run("http://bad.example/"),
        "403 network.no-rule `bad.example:80` is denied",
    );
    good(&run("https://bad.example/"), "403 Forbidden");
}

/// The Debian package, or the copy that pip has.
#[test]
fn python_requests() {
    let outside = outside();
    let script = "import sys\n\
        try:\n    import requests\n\
        except ImportError:\n\
        \x20   try:\n        from pip._vendor import requests\n\
        \x20   except ImportError:\n        print('not installed'); sys.exit()\n\
        try:\n    answer = requests.get(sys.argv[1])\n\
        except Exception as e:\n    print(e); sys.exit()\n\
        print(answer.status_code, answer.headers.get('x-brig-reason'), answer.text)\n";
    let run = |url: &str| {
        outside
            .run("/usr/bin/python3", &["-c", script, url])
            .expect("installed")
    };
    let first = run("http://good.example/a");
    if text(&first).starts_with("not installed") {
        return skip("clients/python_requests", "it is not installed");
    }
    good(&first, "200 None hello /a");
    good(&run("https://good.example/b"), "hello /b");
    let denied = format!("403 network.no-rule `bad.example:80` {DENIED}");
    good(&run("http://bad.example/"), &denied);
    good(&run("https://bad.example/"), "403 Forbidden");
}

#[test]
fn pip() {
    let outside = outside();
    let index = outside.folder.path().join("files/simple/brigtest");
    fs::create_dir_all(&index).expect("made");
    let wheel = "brigtest-1.0-py3-none-any.whl";
    let make = "import sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1], 'w') as z:\n\
        \x20   z.writestr('brigtest.py', 'x = 1')\n\
        \x20   z.writestr('brigtest-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: brigtest\\nVersion: 1.0\\n')\n\
        \x20   z.writestr('brigtest-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nTag: py3-none-any\\n')\n\
        \x20   z.writestr('brigtest-1.0.dist-info/RECORD', '')\n";
    let file = index.join(wheel).display().to_string();
    good(
        &outside
            .run("/usr/bin/python3", &["-c", make, &file])
            .expect("installed"),
        "",
    );
    fs::write(
        index.join("index.html"),
        format!("<a href=\"{wheel}\">{wheel}</a>"),
    )
    .expect("written");
    let run = |host: &str| {
        let url = format!("http://{host}/simple");
        let name = host.split(':').next().unwrap_or_default();
        outside
            .run(
                "/usr/bin/python3",
                &[
                    "-m",
                    "pip",
                    "download",
                    "--no-deps",
                    "--no-cache-dir",
                    "--disable-pip-version-check",
                    "--retries",
                    "0",
                    "--index-url",
                    &url,
                    "--trusted-host",
                    name,
                    "brigtest",
                ],
            )
            .expect("installed")
    };
    let downloaded = run("files.example:8000");
    if text(&downloaded).contains("No module named pip") {
        return skip("clients/pip", "it is not installed");
    }
    good(&downloaded, "brigtest");
    assert!(outside.folder.path().join(wheel).exists());
    bad(&run("bad.example"), "No matching distribution");
    assert!(outside.lab.last_denial().contains(DENIED));
}

#[test]
fn node() {
    let outside = outside();
    let script = "const http = require('http'); const proxy = new URL(process.env.http_proxy);\n\
        http.get({host: proxy.hostname, port: proxy.port, path: process.argv[1],\n\
        headers: {Host: new URL(process.argv[1]).host}}, answer => {\n\
        console.log(answer.statusCode, answer.headers['x-brig-reason']); answer.pipe(process.stdout); });";
    let Some(plain) = outside.run("node", &["-e", script, "http://good.example/a"]) else {
        return;
    };
    good(&plain, "hello /a");
    let denied = outside
        .run("node", &["-e", script, "http://bad.example/"])
        .expect("installed");
    good(&denied, "403 network.no-rule");
    good(&denied, DENIED);
}

#[test]
fn npm() {
    let outside = outside();
    let about = r#"{"name": "brigtest", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": {"name": "brigtest", "version": "1.2.3", "dist": {"tarball": "http://files.example:8000/brigtest.tgz"}}}}"#;
    fs::write(outside.folder.path().join("files/brigtest"), about).expect("written");
    let run = |host: &str| {
        let registry = format!("--registry=http://{host}/");
        let quiet = ["--fetch-retries=0", "--no-update-notifier"];
        outside.run(
            "npm",
            &["view", "brigtest", "version", &registry, quiet[0], quiet[1]],
        )
    };
    let Some(seen) = run("files.example:8000") else {
        return;
    };
    good(&seen, "1.2.3");
    bad(&run("bad.example").expect("installed"), "403");
}

#[test]
fn openssl() {
    let outside = outside();
    let proxy = outside.lab.proxy.to_string();
    let ca = outside.path("ca.pem");
    let run = |host: &str, name: &str| {
        let connect = format!("{host}:443");
        outside.run(
            "openssl",
            &[
                "s_client",
                "-proxy",
                &proxy,
                "-connect",
                &connect,
                "-servername",
                name,
                "-CAfile",
                &ca,
                "-verify_return_error",
                "-brief",
                "-ign_eof",
            ],
        )
    };
    // It waits for the server to end, which it does at the end of input.
    let Some(fronted) = run("good.example", "evil.io") else {
        return;
    };
    bad(&fronted, "alert access denied");
    bad(
        &run("bad.example", "bad.example").expect("installed"),
        "403",
    );
    let connect = "good.example:443";
    let sound = outside.run(
        "openssl",
        &[
            "s_client",
            "-proxy",
            &proxy,
            "-connect",
            connect,
            "-servername",
            "good.example",
            "-CAfile",
            &ca,
            "-verify_return_error",
            "-brief",
        ],
    );
    good(&sound.expect("installed"), "Verification: OK");
}

#[test]
fn nothing_reaches_a_denied_server() {
    let outside = outside();
    let lab = &outside.lab;
    lab.name("bad.example", &[crate::common::OTHER]).route(
        crate::common::OTHER,
        80,
        outside.web.address,
    );
    assert!(lab.get("http://bad.example/").starts_with("HTTP/1.1 403"));
    assert_eq!(outside.web.accepted(), 0);
    assert!(lab.looked_up().is_empty());
    // The listener is alive.
    assert!(lab.get("http://good.example/").starts_with("HTTP/1.1 200"));
    assert_eq!(outside.web.accepted(), 1);
}
