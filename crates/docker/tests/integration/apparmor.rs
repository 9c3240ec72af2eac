//! Generated profiles in a kernel that has AppArmor: `scripts/test-vm` boots one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brig_docker::{Kernel, Profile};
use brig_guest_host::commands::{Root, scan};
use brig_policy::{Compat, Document, PolicySet};

const ATTEMPTS: &str = include_str!("apparmor_attempts.py");

const ALL: [&str; 18] = [
    "copy",
    "copy-called-id",
    "denied",
    "hard-link",
    "host-name",
    "library",
    "link",
    "loader",
    "loader-alone",
    "loader-copy",
    "memory-file",
    "mount",
    "own-library",
    "program-written",
    "read",
    "script",
    "script-for-denied",
    "true",
];

/// The means to try it, or a note that there are none.
fn kernel(test: &str) -> Option<Kernel> {
    match Kernel::find() {
        Ok(kernel) => Some(kernel),
        Err(wanted) => {
            // That machine is there for this.
            let vm = std::env::var("BRIG_TEST_WHERE").is_ok_and(|place| place.starts_with("vm"));
            assert!(!vm, "AppArmor can't be tried: {wanted}");
            brig_testing::skip(test, &format!("needs: {wanted}"));
            None
        }
    }
}

fn profile(policy: &str) -> Profile {
    let document = Document::load("p.yaml", policy, Compat::Strict).expect("valid");
    let policies = PolicySet::new(vec![document.document]);
    let root = Root::open(Path::new("/"), ["/usr/bin", "/bin"], None).expect("a root");
    let found = scan(policies.commands(), &root);
    let writable = ["/tmp", "/var/tmp"].map(str::to_owned);
    Profile::of(&found, &[], &writable)
}

/// What works, under a profile or none, in order. Mounts are seen by nobody else.
fn works(profile: Option<&str>) -> Vec<String> {
    let folder = tempfile::tempdir_in("/tmp").expect("folder");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if let Some(profile) = profile {
        command.args(["aa-exec", "-p", profile, "--"]);
    }
    command.args(["/usr/bin/python3", "-c", ATTEMPTS]);
    let said = command.arg(folder.path()).output().expect("started");
    eprintln!("{profile:?}: {}", String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{:?}", said.status);
    let text = String::from_utf8(said.stdout).expect("text");
    let mut works: Vec<String> = text.lines().map(str::to_owned).collect();
    works.sort();
    works
}

async fn under(kernel: &Kernel, policy: &str) -> Vec<String> {
    let profile = profile(policy);
    kernel.load(&profile).await.expect("loaded");
    let works = works(Some(&profile.name));
    assert_eq!(sweep(kernel, &profile, Duration::ZERO).await, 1);
    works
}

/// Of profiles that long unused, only this one is anybody's to remove here.
async fn sweep(kernel: &Kernel, profile: &Profile, keep: Duration) -> usize {
    let kernel = kernel.clone().keeping(keep);
    let removed = kernel.sweep(|name| name != profile.name).await;
    removed.expect("swept")
}

#[test]
fn without_a_profile_everything_works() {
    if kernel("without_a_profile_everything_works").is_some() {
        assert_eq!(works(None), ALL);
    }
}

#[tokio::test]
async fn a_denied_program_can_be_neither_started_nor_copied() {
    let Some(kernel) = kernel("a_denied_program_can_be_neither_started_nor_copied") else {
        return;
    };
    let works = under(&kernel, "command_denylist: [id]\n").await;
    // AppArmor does not look at what the kernel starts for a script. So a profile is not what holds a
    // denylist in a container: there is nothing to start at that place but a stand-in.
    let expected = [
        "library",
        "loader-alone",
        "own-library",
        "program-written",
        "script",
        "script-for-denied",
        "true",
    ];
    assert_eq!(works, expected);
}

#[tokio::test]
async fn under_an_allowlist_nothing_else_starts() {
    let Some(kernel) = kernel("under_an_allowlist_nothing_else_starts") else {
        return;
    };
    let works = under(&kernel, "command_allowlist: [python3, 'true']\n").await;
    assert_eq!(works, ["library", "read", "true"]);
}

#[tokio::test]
async fn a_profile_goes_when_nobody_uses_or_asks_for_it() {
    let Some(kernel) = kernel("a_profile_goes_when_nobody_uses_or_asks_for_it") else {
        return;
    };
    let profile = profile("command_denylist: [dmesg]\n");
    kernel.load(&profile).await.expect("loaded");
    assert_eq!(
        sweep(&kernel, &profile, Duration::from_secs(3600)).await,
        0,
        "it is young"
    );

    std::thread::sleep(Duration::from_millis(1500));
    assert!(kernel.age(&profile) >= Some(Duration::from_secs(1)));
    let before = Instant::now();
    kernel.load(&profile).await.expect("loaded");
    let age = kernel.age(&profile).expect("there");
    assert!(
        age <= before.elapsed() + Duration::from_millis(100),
        "{age:?}"
    );

    let mut held = Command::new("aa-exec")
        .args(["-p", &profile.name, "--", "/usr/bin/python3", "-c"])
        .arg("print(flush=True); input()")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = [0];
    let mut output = held.stdout.take().expect("its output");
    std::io::Read::read_exact(&mut output, &mut line).expect("it runs");
    assert_eq!(
        sweep(&kernel, &profile, Duration::ZERO).await,
        0,
        "it is in use"
    );
    drop(held.stdin.take());
    held.wait().expect("it ends");
    assert_eq!(sweep(&kernel, &profile, Duration::ZERO).await, 1);
    assert_eq!(kernel.age(&profile), None);
}
