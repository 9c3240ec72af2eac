//! Mounts that the host makes, moves and removes while a sandbox runs. All of it happens in a mount
//! namespace of the test's own (or of the tests' engine), whose mounts are shared, as systemd leaves
//! them. The control is a process that receives what its host mounts.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use brig_sandbox::SessionConfig;
use serde_json::{Value, json};

use crate::fence::{bounded, with_fence};
use crate::owner::{Answer, Task};
use crate::probe::{Attempts, Probe};
use crate::target::{AttackTarget, mount_spec};
use crate::{host, probe, rootfs};

#[macro_export]
macro_rules! propagation {
    ($target:path) => {
        $crate::attacks!($target, propagation:
            host_mounts_do_not_reach_mounted_folders,
            host_mounts_do_not_reach_the_system_or_an_interpreter,
            host_mounts_do_not_reach_a_given_root,
        );
    };
}

const HOST: &str = include_str!("../probes/host_mounts.py");

/// Who makes the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The one who mounts.
    Same,
    /// An ordinary user, while root mounts.
    Other,
}

fn everyone() -> Vec<Who> {
    if host::is_root() {
        vec![Who::Same, Who::Other]
    } else {
        vec![Who::Same]
    }
}

/// One place, by its path outside and inside.
fn place(name: &str, outside: &Path, inside: &str, sealed: bool) -> (Value, Value) {
    let at = |path: &str| {
        json!({
            "name": name,
            "made": format!("{path}/made"),
            "moved": format!("{path}/moved"),
            "nested": format!("{path}/nested"),
            "sealed": sealed.then(|| format!("{path}/nested")),
        })
    };
    // Where it is not removed by then: the control has nothing else to write to.
    let mut outside = at(&outside.display().to_string());
    if sealed {
        outside["sealed"] = outside["made"].clone();
    }
    (outside, at(inside))
}

struct Stage<'a> {
    base: &'a Path,
    /// Outside and inside.
    places: Vec<(Value, Value)>,
    root: Option<&'a Path>,
    who: Who,
    /// Something is mounted below a place that is to be read-only.
    holds_mounts_read_only: bool,
}

impl Stage<'_> {
    fn list(&self, inside: bool) -> Vec<&Value> {
        self.places
            .iter()
            .map(|(there, here)| if inside { here } else { there })
            .collect()
    }

    /// Attempts of the control, and what the owner answered.
    fn play(&self, target: &AttackTarget, task: &Task, engine: Option<i32>) -> (Attempts, Answer) {
        let files = host::scratch();
        let script = files.path().join("host.py");
        std::fs::write(&script, HOST).unwrap();
        let watcher = files.path().join("control.py");
        std::fs::write(&watcher, probe!("propagation").source()).unwrap();
        let signal = self.base.join("signal");
        let seen = json!({"who": "control", "signal": signal, "places": self.list(false)});
        let mut owner: Vec<String> = match (self.who, host::is_root()) {
            (Who::Same, true) => Vec::new(),
            (Who::Same, false) => words(&["setpriv", "--inh-caps=-all", "--ambient-caps=-all"]),
            (Who::Other, _) => words(&[
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--inh-caps=-all",
            ]),
        };
        let own = target
            .owner
            .iter()
            .map(|word| word.to_str().unwrap().to_owned());
        owner.extend(own);
        owner.push(serde_json::to_string(task).unwrap());
        let args = json!({
            "base": self.base,
            "folders": ["ws", "ro", "rw", "venv", "root"],
            "places": self.list(false),
            "root": self.root,
            "venv": true,
            "clean": engine.is_some(),
            "control": ["/usr/bin/python3", "-I", watcher, with_fence(&seen)],
            "owner": owner,
        });
        let mut before = match engine {
            Some(pid) => words(&["nsenter", &format!("--target={pid}"), "--mount"]),
            None if host::is_root() => words(&["unshare", "--mount", "--propagation=shared"]),
            None => words(&[
                "unshare",
                "--user",
                "--map-current-user",
                "--keep-caps",
                "--mount",
                "--propagation=shared",
            ]),
        };
        before.extend(words(&["/usr/bin/python3", "-I"]));
        let mut before: Vec<OsString> = before.into_iter().map(Into::into).collect();
        before.extend([script.into_os_string(), args.to_string().into()]);
        let mut command = bounded(200, before);
        let output = command.env("TMPDIR", self.base).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let noise = String::from_utf8_lossy(&output.stderr);
        let answer: Value = serde_json::from_str(said.trim())
            .unwrap_or_else(|_| panic!("the host did not answer: {said}\n{noise}"));
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        let owner = text("owner");
        let last = owner.lines().last().unwrap_or_default();
        (
            Attempts::parse(text("control").as_bytes(), &output.stderr),
            serde_json::from_str(last).unwrap_or_else(|_| panic!("the owner said: {owner}")),
        )
    }

    fn compare(&self, target: &AttackTarget, task: &Task, engine: Option<i32>) {
        let (control, answer) = self.play(target, task, engine);
        let refused = answer.error.as_deref() == Some("backend.setup")
            && answer.message.contains("is mounted read-only");
        if engine.is_some() && refused {
            // An engine before version 25 leaves what is mounted below a read-only mount writable.
            assert!(self.holds_mounts_read_only, "{}", answer.message);
            return;
        }
        assert_eq!(answer.error, None, "{}: {}", answer.message, answer.stderr);
        let inside = Attempts::parse(answer.stdout.as_bytes(), answer.stderr.as_bytes());
        inside.whole().assert_held(&control.whole());
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The engine process of a target, whose mount namespace counts.
fn engine(target: &AttackTarget) -> Option<i32> {
    let [_, socket, ..] = target.owner.as_slice() else {
        return None;
    };
    let stream = UnixStream::connect(socket).unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&stream).unwrap();
    Some(peer.pid.as_raw_nonzero().get())
}

fn watch(config: SessionConfig, places: &[&Value]) -> Task {
    let probe: Probe = probe!("propagation");
    let args = json!({"who": "inside", "signal": "/mnt/signal", "places": places});
    Task::run(config, &probe, &args)
}

/// `-w`, `-v` and `-v :rw`, with something mounted in each that the host removes.
pub async fn host_mounts_do_not_reach_mounted_folders(target: &AttackTarget) {
    let engine = engine(target);
    let both = everyone()
        .into_iter()
        .flat_map(|who| [(who, true), (who, false)]);
    for (who, nested) in both {
        // An engine is the same whoever asks it. Without it, nothing depends on what is nested.
        let wanted = match engine {
            Some(_) => who == Who::Same,
            None => nested,
        };
        if !wanted {
            continue;
        }
        let scratch = host::scratch();
        let base = scratch.path();
        let mut places = vec![
            place("workspace", &base.join("ws"), "/workspace", false),
            place("read-only", &base.join("ro"), "/mnt/ro", true),
            place("writable", &base.join("rw"), "/mnt/rw", false),
        ];
        if !nested {
            let (outside, inside) = &mut places[1];
            for side in [outside, inside] {
                side["nested"] = Value::Null;
                side["sealed"] = Value::Null;
            }
        }
        let stage = Stage {
            base,
            places,
            root: None,
            who,
            holds_mounts_read_only: nested,
        };
        let config = target.config(SessionConfig {
            workspace: Some(base.join("ws")),
            mounts: vec![
                mount_spec(base.join("ro"), "/mnt/ro", false),
                mount_spec(base.join("rw"), "/mnt/rw", true),
                mount_spec(base.join("signal"), "/mnt/signal", true),
            ],
            ..SessionConfig::default()
        });
        let task = watch(config, &stage.list(true));
        stage.compare(target, &task, engine);
    }
}

/// Two folders of the system to mount on, and one that only `/etc` has.
fn system() -> Vec<(Value, Value)> {
    let there = |path: &&str| Path::new(path).is_dir() && !Path::new(path).is_symlink();
    let mut free = [
        "/usr/src",
        "/usr/share/doc",
        "/usr/share/man",
        "/usr/share/misc",
        "/usr/include",
    ]
    .into_iter()
    .filter(there);
    let (made, moved) = (free.next().unwrap(), free.next().unwrap());
    let mut places = vec![json!({"name": "system", "made": made, "moved": moved})];
    if let Some(made) = ["/etc/ssl/certs", "/etc/alternatives"]
        .iter()
        .find(|path| there(path))
    {
        places.push(json!({"name": "settings", "made": made}));
    }
    places
        .into_iter()
        .map(|place| (place.clone(), place))
        .collect()
}

/// What every sandbox sees of the machine, as it is and with a writable layer above, and the folder
/// of an interpreter that was given.
pub async fn host_mounts_do_not_reach_the_system_or_an_interpreter(target: &AttackTarget) {
    for who in everyone() {
        for read_only_root in [true, false] {
            let scratch = host::scratch();
            let base = scratch.path();
            let venv = base.join("venv");
            let mut places = system();
            places.push(place("interpreter", &venv, venv.to_str().unwrap(), true));
            let stage = Stage {
                base,
                places,
                root: None,
                who,
                holds_mounts_read_only: true,
            };
            let config = SessionConfig {
                python: Some(venv),
                read_only_root,
                mounts: vec![mount_spec(base.join("signal"), "/mnt/signal", true)],
                ..SessionConfig::default()
            };
            let task = watch(config, &stage.list(true));
            stage.compare(target, &task, None);
        }
    }
}

/// `--rootfs`. It holds nothing but a shell.
pub async fn host_mounts_do_not_reach_a_given_root(target: &AttackTarget) {
    let small = rootfs::small_root();
    for who in everyone() {
        let scratch = host::scratch();
        let base = scratch.path();
        let root: PathBuf = base.join("root");
        let place = |root: &str| json!({"name": "root", "made": format!("{root}/mnt/made"), "moved": format!("{root}/srv/moved")});
        let stage = Stage {
            base,
            places: vec![(place(root.to_str().unwrap()), place(""))],
            root: Some(small.path()),
            who,
            holds_mounts_read_only: false,
        };
        let script = "echo x > /signal/ready-inside; until [ -e /signal/go ]; do :; done\n\
            look() { [ -e $2/leak ] && ok=true || ok=false\n\
            echo \"{\\\"attempt\\\": \\\"root: $1\\\", \\\"ok\\\": $ok, \\\"errno\\\": null}\"; }\n\
            look made /mnt/made; look moved /srv/moved\n\
            echo '{\"attempt\": \"end of the probe\", \"ok\": true, \"errno\": null}'";
        let task = Task::Command {
            config: Box::new(SessionConfig {
                rootfs: Some(root),
                mounts: vec![mount_spec(base.join("signal"), "/signal", true)],
                ..SessionConfig::default()
            }),
            words: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
        };
        stage.compare(target, &task, None);
    }
}
