//! What Brig itself starts or relies on outside of a sandbox is nothing that code may have written:
//! neither by `PATH`, which names a directory of a project while its environment is activated, nor by
//! another mount of the same files.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Brig, Done};
use brig_testing::{again_by, passes, test_name};

const CHILD: &str = "BRIG_TEST_OUTSIDE";

/// Runs a test again in a mount namespace of its own. Says whether this is that run.
fn in_own_mounts(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation=private", "--"]);
    command.env(CHILD, "1");
    passes(again_by(command, test));
    false
}

fn mount(kind: &str, options: &str, at: &Path) {
    let mut command = Command::new("mount");
    command.args(["-t", kind, "-o", options, "none"]).arg(at);
    assert!(command.status().unwrap().success(), "{kind} at {at:?}");
}

/// A machine without a Python of the system.
fn hide_python(brig: &Brig) {
    let layers = brig.home().join("layers");
    fs::create_dir(&layers).unwrap();
    mount("tmpfs", "size=8m,mode=755", &layers);
    for (number, folder) in ["/usr/bin", "/usr/local/bin"].iter().enumerate() {
        let (upper, work) = (format!("upper{number}"), format!("work{number}"));
        let [upper, work] = [upper, work].map(|name| layers.join(name));
        fs::create_dir(&upper).unwrap();
        fs::create_dir(&work).unwrap();
        let (upper, work) = (upper.display(), work.display());
        let options = format!("lowerdir={folder},upperdir={upper},workdir={work}");
        mount("overlay", &options, Path::new(folder));
        for name in ["python3", "python"] {
            let _ = fs::remove_file(Path::new(folder).join(name));
        }
    }
    assert!(!Path::new("/usr/bin/python3").exists());
}

/// A program that leaves a file behind when it runs outside.
fn trap(brig: &Brig, program: &Path) -> PathBuf {
    let left = brig.home().join("outside");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let text = format!("#!/bin/sh\n: > {}\nexit 1\n", left.display());
    fs::write(program, text).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    // The control: whoever runs it by its name leaves the file.
    let name = program.file_name().unwrap();
    let path = path_with(program.parent().unwrap());
    let _ = Command::new("/bin/sh")
        .arg("-c")
        .arg(name)
        .env("PATH", path)
        .status();
    fs::remove_file(&left).unwrap();
    left
}

fn path_with(first: &Path) -> OsString {
    let mut path = first.as_os_str().to_owned();
    path.push(":/usr/local/bin:/usr/bin:/bin");
    path
}

fn run(brig: &Brig, first: &Path, words: &[&str]) -> Done {
    let mut command = brig.command(words);
    Done(command.env("PATH", path_with(first)).output().unwrap())
}

/// The system's Python as an installation in another place.
fn install(prefix: &Path) {
    let real = fs::canonicalize("/usr/bin/python3").unwrap();
    let version = real.file_name().unwrap().to_owned();
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(prefix.join("lib")).unwrap();
    fs::copy(&real, prefix.join("bin/python3")).unwrap();
    let library = Path::new("/usr/lib").join(&version);
    symlink(library, prefix.join("lib").join(version)).unwrap();
}

#[test]
fn no_interpreter_in_path_is_run_to_find_out_what_it_is() {
    if !in_own_mounts(&test_name!()) {
        return;
    }
    let brig = Brig::new();
    fs::set_permissions(brig.home(), fs::Permissions::from_mode(0o755)).unwrap();
    let manager = brig.home().join(".pyenv");
    install(&manager.join("versions/3.11.0"));
    hide_python(&brig);
    let code = ["run", "-c", "print('ran')"];

    // What code can make of an environment, and of a directory that is called like a manager's.
    let project = brig.home().join("project");
    for place in ["venv/bin", ".pyenv/shims"] {
        let left = trap(&brig, &project.join(place).join("python3"));
        let prefix = project.join(place);
        let library = prefix.parent().unwrap().join("lib/python3.9");
        fs::create_dir_all(&library).unwrap();
        fs::write(library.join("os.py"), "").unwrap();
        let done = run(&brig, &project.join(place), &code);
        assert!(!left.exists(), "{place}: {done:#?}");
        assert_ne!(done.0.status.code(), Some(0), "{place}: {done:#?}");
        done.complains("python");
    }

    // An installation that is known is used, by its own program or by a shim, and not run either.
    let left = trap(&brig, &manager.join("shims/python3"));
    for place in ["shims", "versions/3.11.0/bin"] {
        let done = run(&brig, &manager.join(place), &code);
        done.exits(0).prints("ran\n");
        assert!(!left.exists(), "{place}");
    }
}

#[test]
fn the_program_that_asks_systemd_is_not_looked_for_in_path() {
    if !in_own_mounts(&test_name!()) {
        return;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let unified = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let Some(unified) = unified.and_then(|line| line.split(' ').nth(4)) else {
        println!("skipped: no cgroup2 file system is mounted here");
        return;
    };
    // A user's service manager, as far as Brig looks before it asks.
    mount("tmpfs", "size=1m,mode=755", Path::new(unified));
    let manager = Path::new(unified).join("user.slice/user-0.slice/user@0.service");
    fs::create_dir_all(&manager).unwrap();
    fs::write(manager.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
    let brig = Brig::new();
    let runtime = brig.home().join("runtime");
    fs::create_dir_all(runtime.join("systemd")).unwrap();
    fs::write(runtime.join("systemd/private"), "").unwrap();

    let bin = brig.home().join("project/venv/bin");
    let left = trap(&brig, &bin.join("busctl"));
    let mut command = brig.command(["run", "--", "true"]);
    command
        .env("PATH", path_with(&bin))
        .env("XDG_RUNTIME_DIR", runtime);
    let done = Done(command.output().unwrap());
    assert!(!left.exists(), "{done:#?}");
    // The control: it was asked for.
    done.exits(125).complains("the user's systemd");
}

#[test]
fn ssh_of_a_project_is_not_started_to_reach_an_engine() {
    let brig = Brig::new();
    let bin = brig.home().join("project/venv/bin");
    let left = trap(&brig, &bin.join("ssh"));
    let mut run = brig.command(["run", "--backend", "docker", "--", "true"]);
    let mut doctor = brig.command(["doctor"]);
    for command in [&mut run, &mut doctor] {
        // Nobody listens there, so the ssh of the system ends at once.
        command.env("DOCKER_HOST", "ssh://127.0.0.1:1");
        command.env("PATH", path_with(&bin)).current_dir(&bin);
        let done = Done(command.output().unwrap());
        assert!(!left.exists(), "{done:#?}");
        // The control: that engine was looked for.
        let text = done.stdout() + &done.stderr();
        assert!(text.contains("127.0.0.1:1"), "{done:#?}");
    }
}

/// A root with a shell and a tool in it.
fn small_root(root: &Path) {
    for folder in "bin dev proc sys tmp etc usr workspace run mnt".split(' ') {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let listing = Command::new("ldd").arg("/bin/sh").output().unwrap();
    let text = String::from_utf8(listing.stdout).unwrap();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/bin/sh"]) {
        let place = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
    let tool = root.join("bin/tool");
    fs::write(&tool, "#!/bin/sh\necho as listed\n").unwrap();
    fs::set_permissions(tool, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_allowlist_is_refused_where_its_files_are_mounted_writable_again() {
    if !in_own_mounts(&test_name!()) {
        return;
    }
    let brig = Brig::new();
    fs::set_permissions(brig.home(), fs::Permissions::from_mode(0o755)).unwrap();
    let [all, root, work] = ["all", "root", "work"].map(|name| brig.home().join(name));
    small_root(&all.join("inner"));
    for folder in [&root, &work] {
        fs::create_dir(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let policy = "name: p\ndefaults: {action: allow}\ncommand_allowlist: [/bin/sh, /bin/tool]\n";
    brig.write("p.yaml", policy);
    let run = |root: &str, work: &str| {
        let words = ["run", "--policy", "p.yaml", "--rootfs", root, "-w", work];
        brig.run([&words[..], &["--", "/bin/tool"]].concat())
    };
    // The control: a directory that is nothing but itself.
    run("all/inner", "work").exits(0).prints("as listed\n");
    // The root by another path, and a directory that the root is in by another path.
    bind(&all.join("inner"), &root);
    run("root", "all")
        .exits(125)
        .complains("is in the writable directory");
    bind(&all.join("inner/bin"), &work);
    run("all/inner", "work")
        .exits(125)
        .complains("is in the writable directory");
}

fn bind(from: &Path, to: &Path) {
    let done = Command::new("mount")
        .arg("--bind")
        .args([from, to])
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn what_decides_is_out_of_reach_by_another_mount_too() {
    if !in_own_mounts(&test_name!()) {
        return;
    }
    let brig = Brig::new();
    fs::set_permissions(brig.home(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in [
        "real/project",
        "again",
        "apart",
        "state",
        "state-again",
        "home-again",
    ] {
        let folder = brig.home().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let policy = "name: p\ndefaults: {action: allow}\n";
    brig.write("real/project/p.yaml", policy);
    bind(&brig.home().join("real"), &brig.home().join("again"));
    let run =
        |policy: &str, work: &str| brig.run(["run", "--policy", policy, "-w", work, "--", "true"]);
    // The control: another directory is written.
    run("again/project/p.yaml", "apart").exits(0);
    for (policy, work) in [
        ("real/project/p.yaml", "real/project"),
        ("again/project/p.yaml", "real/project"),
        ("real/project/p.yaml", "again/project"),
        ("real/project/p.yaml", "again"),
    ] {
        run(policy, work).exits(125).complains("is writable");
    }

    // Brig's own state, and a home.
    let state = brig.home().join("state");
    let shown = |folder: &str| {
        let mount = format!("{}:/mnt", brig.home().join(folder).display());
        let mut command = brig.command(["run", "-v", &mount, "--", "find", "/mnt"]);
        Done(command.env("XDG_STATE_HOME", &state).output().unwrap())
    };
    shown("apart").exits(0);
    shown("state")
        .exits(125)
        .complains("Brig keeps its own state there");
    bind(&state, &brig.home().join("state-again"));
    shown("state-again")
        .exits(125)
        .complains("another mount of");
    bind(brig.home(), &brig.home().join("home-again"));
    shown("home-again").exits(125).complains("another mount of");
    shown("home-again/state")
        .exits(125)
        .complains("another mount of");
    shown("home-again/apart").exits(0);
}
