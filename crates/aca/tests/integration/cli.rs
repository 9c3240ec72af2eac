//! The command line, as a program of its own with the feature `azure`: without any setting, and against the
//! stand-in. A program in place of the Azure CLI hands out the token.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

use crate::stand_in::{StandIn, TOKEN};

/// `brig` with the feature, or why there is none. It is no part of this package.
fn brig() -> Option<PathBuf> {
    let found = std::env::var_os("BRIG_TEST_AZURE_CLI");
    if found.is_none() {
        let why = "needs the command line with the feature: BRIG_TEST_AZURE_CLI=FILE";
        brig_testing::skip(&brig_testing::test_name!(), why);
    }
    found.map(PathBuf::from)
}

/// A user without any variable but what every program needs.
struct User {
    home: TempDir,
    brig: PathBuf,
}

impl User {
    fn new() -> Option<Self> {
        let (brig, home) = (brig()?, tempfile::tempdir().unwrap());
        std::fs::create_dir_all(home.path().join("config/brig")).unwrap();
        std::fs::create_dir(home.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(&brig, home.path().join("bin/brig")).unwrap();
        Some(Self { home, brig })
    }

    /// With a token, and the stand-in in its configuration.
    fn of(stand_in: &StandIn) -> Option<Self> {
        let user = Self::new()?;
        let az = user.home.path().join("bin/az");
        let token =
            json!({"accessToken": TOKEN, "expires_on": 4_102_444_800_u64, "tokenType": "Bearer"});
        std::fs::write(&az, format!("#!/bin/sh\necho '{token}'\n")).unwrap();
        std::fs::set_permissions(&az, PermissionsExt::from_mode(0o755)).unwrap();
        // In this file, names are written with `_`.
        let settings = stand_in.settings().into_iter();
        let options: BTreeMap<String, String> = settings
            .map(|(name, value)| (name.replace('-', "_"), value))
            .collect();
        let backends = json!({"backends": {"test": {"kind": "aca", "options": options}}});
        let config = user.home.path().join("config/brig/config.yaml");
        std::fs::write(config, backends.to_string()).unwrap();
        Some(user)
    }

    /// Brig starts programs of the host only from where no sandbox can write, so its own are mounted there.
    fn command(&self, program: &Path) -> Command {
        let home = self.home.path();
        let mut command = Command::new("unshare");
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            command.arg("--map-root-user");
        }
        command
            .args(["--mount", "--", "/bin/sh", "-c"])
            .arg("mount --bind \"$0\" /usr/local/bin && exec \"$@\"")
            .arg(home.join("bin"))
            .arg(program)
            .env_clear()
            .current_dir(home)
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"));
        command
    }

    /// The stand-in goes on answering meanwhile.
    async fn output(mut command: Command) -> Said {
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        Said(output.await.unwrap())
    }

    async fn run(&self, arguments: &[&str]) -> Said {
        let mut command = self.command(&self.brig);
        command.args(arguments);
        Self::output(command).await
    }
}

#[derive(Debug)]
struct Said(Output);

impl Said {
    fn exits(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{self:?}");
        self
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }
}

#[tokio::test]
async fn without_settings_each_missing_one_is_named_with_a_command() {
    let Some(user) = User::new() else { return };
    let run = ["run", "--backend", "aca", "-c", "print(1)"];
    let needed = [
        ("subscription", "AZURE_SUBSCRIPTION_ID", "az account show"),
        ("resource_group", "ACA_RESOURCE_GROUP", "az group list"),
        ("sandbox_group", "ACA_SANDBOX_GROUP", "az resource list"),
        ("region", "ACA_REGION", "az resource list"),
    ];
    for count in 0..=needed.len() {
        let set = |command: &mut Command| {
            for (_, variable, _) in &needed[..count] {
                command.env(variable, "value");
            }
        };
        let mut doctor = user.command(&user.brig);
        doctor.arg("doctor");
        set(&mut doctor);
        // It is about all backends, and the usual one works.
        let doctor = User::output(doctor).await.exits(0).stdout();
        let mut command = user.command(&user.brig);
        command.args(run);
        set(&mut command);
        let said = User::output(command).await.exits(125);
        assert_eq!(said.stdout(), "", "nothing was run");
        let (reason, fix) = match needed.get(count) {
            Some((name, variable, find)) => {
                assert!(said.stderr().contains(variable), "{said:?}");
                (format!("the setting `{name}` is missing"), *find)
            }
            None => ("no token".to_owned(), "az login"),
        };
        for said in [doctor, said.stderr()] {
            assert!(said.contains(&reason) && said.contains(fix), "{said}");
        }
    }
}

#[tokio::test]
async fn doctor_finds_the_group_and_a_run_works() {
    let stand_in = StandIn::start().await;
    let Some(user) = User::of(&stand_in) else {
        return;
    };
    let doctor = user.run(&["doctor"]).await.exits(0).stdout();
    assert!(doctor.contains("rg-1/group-1"), "{doctor}");
    assert_eq!(stand_in.count("create"), 1, "it is tried");
    let said = user
        .run(&["run", "--backend", "aca:test", "-c", "print(6 * 7)"])
        .await
        .exits(0);
    assert_eq!(said.stdout(), "42\n");
    assert_eq!((stand_in.count("create"), stand_in.count("delete")), (2, 2));
    stand_in.check_clean();
}

/// Each command is a process that joins the sandbox of the session.
#[tokio::test]
async fn decisions_are_recorded_once_over_several_commands() {
    let stand_in = StandIn::start().await;
    let Some(user) = User::of(&stand_in) else {
        return;
    };
    let entry = |number: usize| json!({"timestamp": number, "host": format!("n{number}.example")});
    let create = ["session", "create", "--backend", "aca:test", "s"];
    user.run(&create).await.exits(0);
    for count in [1, 1, 2] {
        let denied: Vec<_> = (0..count).rev().map(entry).collect();
        stand_in.state().decisions["denied"] = json!(denied);
        let exec = ["session", "exec", "s", "--", "true"];
        user.run(&exec).await.exits(0);
    }
    let show = ["audit", "show", "--event", "egress_decided", "--json"];
    let shown = user.run(&show).await.exits(0).stdout();
    for host in ["n0.example", "n1.example"] {
        assert_eq!(shown.matches(host).count(), 1, "{shown}");
    }
    assert!(!shown.contains("network.incomplete"), "{shown}");
    user.run(&["session", "destroy", "s"]).await.exits(0);
    assert_eq!((stand_in.count("create"), stand_in.count("delete")), (1, 1));
    stand_in.check_clean();
}

/// The script of the example, as it is. The machines of the stand-in have no network, so the one host that is
/// allowed is not reached.
#[tokio::test]
async fn the_quickstart_says_what_went_as_it_should() {
    let stand_in = StandIn::start().await;
    let Some(user) = User::of(&stand_in) else {
        return;
    };
    stand_in.state().decisions["denied"] =
        json!([{"timestamp": "t", "host": "example.com", "scheme": "https"}]);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut script = user.command(Path::new("/bin/bash"));
    script
        .arg(examples.join("azure/quickstart"))
        .arg("aca:test");
    let said = User::output(script).await.exits(1).stdout();
    let lines: Vec<(&str, &str)> = (said.lines())
        .filter_map(|line| line.split_once(' '))
        .filter(|(verdict, _)| matches!(*verdict, "ok" | "FAILED"))
        .map(|(verdict, name)| (verdict, name.trim().split(':').next().unwrap_or_default()))
        .collect();
    assert_eq!(
        lines,
        [
            ("FAILED", "allowed"),
            ("ok", "denied by a rule, before anything is sent"),
            ("ok", "blocked at egress"),
            ("ok", "sane after failures"),
            ("ok", "a tool that is allowed"),
            ("ok", "a tool that is denied"),
            ("ok", "it ran elsewhere"),
            ("ok", "egress is on record"),
        ],
        "{said}"
    );
    assert!(said.contains("status 200"), "control: {said}");
    stand_in.check_clean();
}
