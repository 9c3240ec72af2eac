//! Files that a sandbox may have written, and what becomes of whoever reads them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Brig, Done};

const POLICY: &str = "version: '1.0'\nname: p\nrules: []\ndefaults: {action: allow}\n";

type Maker = fn(&Path);

fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn project(brig: &Brig) -> PathBuf {
    let folder = brig.home().join("project");
    fs::create_dir_all(&folder).unwrap();
    // The sandbox of root is another user.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Each way to have a file read, by its path and the words that name it.
fn readers(brig: &Brig) -> Vec<(PathBuf, Vec<String>)> {
    let at = |name: &str| brig.home().join(name);
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    fs::create_dir_all(at("config/brig")).unwrap();
    fs::create_dir_all(at("venv/bin")).unwrap();
    fs::create_dir_all(at("governed")).unwrap();
    symlink("/usr/bin/python3", at("venv/bin/python3")).unwrap();
    brig.write(
        "agent.yaml",
        "name: a\ncommand: ['true']\npolicy: agent-policy.yaml\n",
    );
    vec![
        (
            at("script.py"),
            words(&["run", "--timeout", "2s", "script.py"]),
        ),
        (
            at("p.yaml"),
            words(&["run", "--policy", "p.yaml", "--", "true"]),
        ),
        (at("p.yaml"), words(&["policy", "check", "p.yaml"])),
        (
            at("venv/pyvenv.cfg"),
            words(&["run", "--python", "venv", "-c", "1"]),
        ),
        (at("config/brig/config.yaml"), words(&["run", "--", "true"])),
        (
            at("governed/governance.yaml"),
            words(&[
                "run",
                "--policy-root",
                "governed",
                "--policy-path",
                "governed",
                "--",
                "true",
            ]),
        ),
        (at("other.yaml"), words(&["agent", "run", "other.yaml"])),
        (
            at("agent-policy.yaml"),
            words(&["agent", "run", "agent.yaml"]),
        ),
        (at("file"), words(&["session", "cp", "file", "s:file"])),
        (
            at("key.pub"),
            words(&["audit", "verify", "--key", "key.pub"]),
        ),
    ]
}

/// Ended after a while, and with little memory: whatever it does, the machine is safe.
fn held(brig: &Brig, words: &[String]) -> (Done, Duration) {
    let begun = Instant::now();
    let brig = brig.command(words);
    let mut command = Command::new("prlimit");
    command.args(["--as=4294967296", "--", "timeout", "--signal=KILL", "20"]);
    command.arg(brig.get_program()).args(brig.get_args());
    command.current_dir(brig.get_current_dir().unwrap());
    for (name, value) in brig.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    (Done(output), begun.elapsed())
}

#[test]
fn nothing_but_a_regular_file_is_read() {
    let kinds: [(&str, Maker); 4] = [
        ("FIFO", fifo),
        ("device", |path| symlink("/dev/zero", path).unwrap()),
        ("device", |path| symlink("/dev/tty", path).unwrap()),
        ("socket", |path| {
            drop(std::os::unix::net::UnixListener::bind(path).unwrap())
        }),
    ];
    for (kind, make) in kinds {
        let brig = Brig::new();
        brig.run(["session", "create", "s"]).exits(0);
        for (path, words) in readers(&brig) {
            make(&path);
            let (done, took) = held(&brig, &words);
            let code = done.0.status.code();
            assert!(
                code.is_some_and(|code| code != 0 && code != 137),
                "{kind} {words:?}: {done:#?}"
            );
            assert!(took < Duration::from_secs(15), "{kind} {words:?}: {took:?}");
            let said = done.stderr();
            // A link out of the directory is refused before it is found to be a device.
            assert!(
                said.contains(kind) || said.contains("is a symbolic link"),
                "{kind} {words:?}: {said}"
            );
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_file_without_an_end_is_not_read_to_it() {
    let brig = Brig::new();
    for (path, words) in readers(&brig) {
        if words[0] == "session" {
            continue;
        }
        let file = fs::File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let (done, took) = held(&brig, &words);
        assert_ne!(done.0.status.code(), Some(0), "{words:?}: {done:#?}");
        assert!(took < Duration::from_secs(15), "{words:?}: {took:?}");
        fs::remove_file(&path).unwrap();
    }
}

/// What a user names on purpose may be a stream.
#[test]
fn a_descriptor_is_read_to_its_end() {
    let brig = Brig::new();
    brig.run_with_input(["run", "--lang", "python", "/dev/stdin"], b"print(6 * 7)")
        .exits(0)
        .prints("42\n");
    brig.run_with_input(["run", "-"], b"print(6 * 7)")
        .exits(0)
        .prints("42\n");
    brig.run_with_input(
        ["run", "--policy", "/dev/fd/0", "--", "echo", "x"],
        POLICY.as_bytes(),
    )
    .exits(0)
    .prints("x\n");
}

#[test]
fn a_script_is_the_file_that_was_named() {
    let brig = Brig::new();
    let project = project(&brig);
    fs::create_dir(brig.home().join("private")).unwrap();
    let diary = brig.home().join("private/diary.py");
    fs::write(&diary, "print('private')").unwrap();
    symlink(&diary, project.join("script.py")).unwrap();
    symlink("../private", project.join("src")).unwrap();
    for name in ["project/script.py", "project/src/diary.py"] {
        brig.run(["run", name])
            .exits(125)
            .complains("use its path: `")
            .prints("");
    }
    brig.run(["session", "create", "s"]).exits(0);
    brig.run(["session", "cp", "project/script.py", "s:x"])
        .exits(125)
        .complains("use its path: `");
    // Controls: who names it, has it; and a link that stays where it lies is one's own business.
    brig.run(["run", diary.to_str().unwrap()])
        .exits(0)
        .prints("private\n");
    fs::write(project.join("real.py"), "print('real')").unwrap();
    symlink("real.py", project.join("link.py")).unwrap();
    brig.run(["run", "project/link.py"])
        .exits(0)
        .prints("real\n");
}

#[test]
fn a_copy_out_of_a_session_lands_where_it_was_named() {
    let brig = Brig::new();
    let project = project(&brig);
    let private = brig.home().join("private");
    fs::create_dir(&private).unwrap();
    brig.run(["session", "create", "s"]).exits(0);
    brig.write("config", "from the sandbox");
    brig.run(["session", "cp", "config", "s:config"]).exits(0);
    // As code leaves them: in the place of a file, and on the way.
    symlink("../private", project.join("result.txt")).unwrap();
    for force in [&[][..], &["--force"][..]] {
        for to in [
            "project/result.txt",
            "project/result.txt/",
            "project/result.txt/new",
        ] {
            let words = [&["session", "cp"], force, &["s:config", to]].concat();
            brig.run(words).exits(125).complains("use its path: `");
        }
    }
    assert_eq!(fs::read_dir(&private).unwrap().count(), 0);
    // Controls: the place itself, a link that stays where it lies, and a link to a file, which is
    // replaced only if asked for, and then itself.
    brig.run(["session", "cp", "s:config", "private"]).exits(0);
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    assert_eq!(text(&private.join("config")), "from the sandbox");
    fs::create_dir(project.join("real")).unwrap();
    symlink("real", project.join("out")).unwrap();
    brig.run(["session", "cp", "s:config", "project/out"])
        .exits(0);
    assert_eq!(text(&project.join("real/config")), "from the sandbox");
    fs::write(private.join("diary"), "kept").unwrap();
    symlink("../private/diary", project.join("file")).unwrap();
    brig.run(["session", "cp", "s:config", "project/file"])
        .exits(125)
        .complains("already exists");
    brig.run(["session", "cp", "--force", "s:config", "project/file"])
        .exits(0);
    assert_eq!(text(&project.join("file")), "from the sandbox");
    assert_eq!(text(&private.join("diary")), "kept");
    brig.run(["session", "cp", "s:config", "project/none/"])
        .exits(125);
    assert!(!project.join("none").exists());
}

#[test]
fn links_choose_no_policies_of_other_directories() {
    let brig = Brig::new();
    let project = project(&brig);
    let deny = POLICY.replace("action: allow", "action: deny");
    fs::write(brig.home().join("governance.yaml"), &deny).unwrap();
    fs::create_dir(brig.home().join("lax")).unwrap();
    brig.write("lax/governance.yaml", POLICY);
    symlink("../lax", project.join("src")).unwrap();
    symlink("../missing", project.join("later")).unwrap();
    let run = |root: &str, path: &str| {
        let words = ["--policy-root", root, "--policy-path", path, "--", "true"];
        brig.run([&["run"], &words[..]].concat())
    };
    run("project/src", "project/src")
        .exits(125)
        .complains("use its path: `");
    run(".", "project/src")
        .exits(125)
        .complains("use its path: `");
    run(".", "project/later/file").exits(125);
    // Controls: each place has the policy that lies there, and what is yet to be made has one, too.
    run("lax", "lax").exits(0);
    let denied = run(".", "project/new/file");
    assert_eq!(denied.0.status.code(), run(".", "project").0.status.code());
    denied.complains("denied");
}

#[test]
fn what_decides_is_out_of_reach_of_what_it_decides_about() {
    let brig = Brig::new();
    let project = project(&brig);
    fs::create_dir(project.join("below")).unwrap();
    fs::write(project.join("p.yaml"), POLICY).unwrap();
    fs::write(project.join("governance.yaml"), POLICY).unwrap();
    let agent = "name: a\ncommand: ['true']\n";
    fs::write(project.join("agent.yaml"), agent).unwrap();
    let ways: [&[&str]; 4] = [
        &["run", "--policy", "project/p.yaml"],
        &[
            "run",
            "--policy-root",
            "project",
            "--policy-path",
            "project",
        ],
        &[
            "run",
            "--policy-root",
            "project",
            "--policy-path",
            "project/below",
        ],
        &["agent", "run"],
    ];
    for way in ways {
        let last: &[&str] = match way[0] {
            "agent" => &["project/agent.yaml"],
            _ => &["--", "true"],
        };
        let with = |mount: &[&'static str]| [way, mount, last].concat();
        brig.run(with(&["-w", "project"]))
            .exits(125)
            .complains("the sandbox could change it");
        brig.run(with(&["-v", "project:/data:rw"]))
            .exits(125)
            .complains("the sandbox could change it");
        brig.run(with(&["-v", "project:/data"])).exits(0);
        brig.run(with(&[])).exits(0);
    }
    // A link in the project leads to no other policy.
    fs::create_dir(brig.home().join("elsewhere")).unwrap();
    brig.write("elsewhere/p.yaml", POLICY);
    symlink("../elsewhere/p.yaml", project.join("linked.yaml")).unwrap();
    brig.run(["run", "--policy", "project/linked.yaml", "--", "true"])
        .exits(125)
        .complains("use its path: `");
    brig.run(["run", "--policy", "elsewhere/p.yaml", "--", "true"])
        .exits(0);
}

/// An interpreter outside of the system: known if it is where a version manager keeps them, and then
/// said to be shown. PATH makes none known: it may name what code can write.
#[test]
fn an_environment_leads_only_to_a_known_installation() {
    let brig = Brig::new();
    let version = Command::new("/usr/bin/python3")
        .args([
            "-c",
            "import sys; print('python%d.%d' % sys.version_info[:2])",
        ])
        .output()
        .unwrap();
    let version = String::from_utf8(version.stdout).unwrap().trim().to_owned();
    let installed = brig.home().join("own/py");
    fs::create_dir_all(installed.join("bin")).unwrap();
    fs::create_dir_all(installed.join("lib")).unwrap();
    fs::copy("/usr/bin/python3", installed.join("bin/python3")).unwrap();
    symlink(
        format!("/usr/lib/{version}"),
        installed.join("lib").join(&version),
    )
    .unwrap();
    for folder in ["own", "own/py", "own/py/bin", "own/py/lib", "."] {
        let path = brig.home().join(folder);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let venv = project(&brig).join("venv");
    fs::create_dir_all(venv.join("bin")).unwrap();
    symlink(installed.join("bin/python3"), venv.join("bin/python3")).unwrap();
    let config = format!("home = {}\n", installed.join("bin").display());
    fs::write(venv.join("pyvenv.cfg"), config).unwrap();
    let words = ["run", "--python", "project/venv", "-c", "print('ran')"];
    brig.run(words)
        .exits(125)
        .complains("not a known Python installation");
    let path = format!("{}:/usr/bin:/bin", installed.join("bin").display());
    let in_path = Done(brig.command(words).env("PATH", path).output().unwrap());
    in_path
        .exits(125)
        .complains("not a known Python installation");
    let mut command = brig.command(words);
    command.env("UV_PYTHON_INSTALL_DIR", brig.home().join("own"));
    let known = Done(command.output().unwrap());
    let shown = format!(
        "shown: `{}`, read-only",
        installed.canonicalize().unwrap().display()
    );
    known.exits(0).prints("ran\n").complains(&shown);
}
