//! Interpreters that are given, and what of the host they bring along.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use brig_native::NativeBackend;
use brig_sandbox::{AgentId, Error, Language, Request, Result, Sandbox, SessionConfig};

/// Somebody's home, with a secret and an interpreter in it.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    std::fs::write(home.path().join(".ssh/id"), "secret").unwrap();
    std::fs::create_dir(home.path().join("bin")).unwrap();
    symlink("/usr/bin/python3", home.path().join("bin/python3")).unwrap();
    home
}

fn environment(home: &str) -> tempfile::TempDir {
    environment_in(&std::env::temp_dir(), home)
}

fn environment_in(place: &Path, home: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(place).unwrap();
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    symlink("/usr/bin/python3", folder.path().join("bin/python3")).unwrap();
    std::fs::write(folder.path().join("pyvenv.cfg"), format!("home = {home}\n")).unwrap();
    folder
}

async fn run(python: &Path, code: String) -> Result<String> {
    let backend = Arc::new(NativeBackend::new());
    let sandbox = Sandbox::builder(backend).build()?;
    let agent: AgentId = "python".parse()?;
    let config = SessionConfig {
        python: Some(python.to_owned()),
        ..SessionConfig::default()
    };
    let request = Request::code(Language::Python, code);
    let report = sandbox.run_once(&agent, config, request).await?;
    let outcome = report.outcome;
    assert_eq!(outcome.exit_code, 0, "{:?}", outcome.stderr);
    Ok(String::from_utf8_lossy(&outcome.stdout.bytes)
        .trim()
        .to_owned())
}

#[tokio::test]
async fn an_environment_is_used_as_one() {
    for place in ["/tmp", "/var/tmp"] {
        let folder = environment_in(Path::new(place), "/usr/bin");
        let path = folder.path().canonicalize().unwrap();
        let prefix = run(&path, "import sys; print(sys.prefix)".into()).await;
        assert_eq!(prefix.unwrap(), path.display().to_string());
    }
}

/// It is a directory of its own where something is mounted in it, and a link to /tmp otherwise.
#[tokio::test]
async fn what_is_beside_an_environment_can_be_written() {
    let code = "import os; open('/var/tmp/new', 'w').write('x'); print(os.listdir('/var/tmp'))";
    for (place, beside) in [("/var/tmp", 2), ("/usr", 1)] {
        let folder = match place {
            "/usr" => None,
            _ => Some(environment_in(Path::new(place), "/usr/bin")),
        };
        let python = folder
            .as_ref()
            .map_or(Path::new("/usr/bin/python3"), |f| f.path());
        let seen = run(python, code.into()).await.unwrap();
        assert_eq!(seen.matches(',').count() + 1, beside, "{seen}");
    }
}

/// The file that names it may have been written by an earlier run.
#[tokio::test]
async fn an_environment_cannot_bring_in_a_folder_with_secrets() {
    let home = home();
    let folder = environment(&home.path().join("bin").display().to_string());
    let error = run(folder.path(), "print()".into()).await.unwrap_err();
    assert!(matches!(error, Error::MountRefused { .. }), "{error}");
}

#[tokio::test]
async fn a_link_to_an_interpreter_does_not_bring_in_the_folder_it_lies_in() {
    let home = home();
    let secret = home.path().join(".ssh/id");
    let code = format!(
        "import os; print(os.path.exists({:?}))",
        secret.display().to_string()
    );
    let seen = run(&home.path().join("bin/python3"), code).await;
    assert_eq!(seen.unwrap(), "False");
}

/// What runs the code is nothing that whoever wrote it should have to know.
#[tokio::test]
async fn a_traceback_shows_the_code_and_nothing_else() {
    let sandbox = Sandbox::builder(Arc::new(NativeBackend::new()))
        .build()
        .unwrap();
    let agent: AgentId = "python".parse().unwrap();
    let stderr = async |code: &str| {
        let request = Request::code(Language::Python, code);
        let report = sandbox.run_once(&agent, SessionConfig::default(), request);
        let outcome = report.await.unwrap().outcome;
        let text = String::from_utf8(outcome.stderr.bytes).unwrap();
        let places = text.lines().filter(|line| line.contains("File \""));
        let place = |line: &str| {
            line.trim()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        (places.map(place).collect::<Vec<_>>(), text)
    };
    let (places, text) = stderr("def f():\n    1 / 0\nf()\n").await;
    let expected = ["code.py\", line 3, in <module>", "code.py\", line 2, in f"];
    assert_eq!(places, expected, "{text}");
    assert!(text.contains("\n    1 / 0\n"), "{text}");
    let (places, text) = stderr("1 +\n").await;
    assert_eq!(places, ["code.py\", line 1"], "{text}");
    assert!(!text.contains("Traceback"), "{text}");
    // One that was caught begins where it was caught.
    let caught = "import sys\ndef g():\n    try:\n        1 / 0\n    except ArithmeticError:\n\
        \x20       sys.excepthook(*sys.exc_info())\ng()\n";
    let (places, text) = stderr(caught).await;
    assert_eq!(places, ["code.py\", line 4, in g"], "{text}");
}
