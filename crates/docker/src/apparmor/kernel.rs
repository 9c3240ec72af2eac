//! Profiles in the kernel.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};

use super::{PREFIX, Profile};

const PARSERS: [&str; 2] = ["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser"];
const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
const LOADED: &str = "/sys/kernel/security/apparmor/policy/profiles";

/// A file for each, touched when it is asked for: to load it again would not make it younger. Gone
/// with the profiles when the machine is started anew.
const ASKED: &str = "/run/brig-apparmor";

/// One that nobody has asked for in that time may go.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// The means to load profiles into the kernel of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    parser: PathBuf,
    keep: Duration,
}

impl Kernel {
    /// Nothing, and what to do about it, where profiles can't be loaded.
    pub fn find() -> std::result::Result<Self, &'static str> {
        let enabled = std::fs::read_to_string(ENABLED).unwrap_or_default();
        if enabled.trim() != "Y" {
            return Err("boot a kernel with AppArmor");
        }
        if !rustix::process::geteuid().is_root() {
            return Err("run as root, which may load AppArmor profiles");
        }
        let parser = PARSERS.iter().map(Path::new).find(|path| path.exists());
        let parser = parser.ok_or("apt-get install apparmor")?;
        Ok(Self {
            parser: parser.to_owned(),
            keep: KEEP,
        })
    }

    /// With another time to keep profiles for than a day.
    pub fn keeping(self, keep: Duration) -> Self {
        Self { keep, ..self }
    }

    /// How long ago a profile was asked for last, if it is loaded.
    pub fn age(&self, profile: &Profile) -> Option<Duration> {
        let found = loaded().find(|found| found.name == profile.name)?;
        Some(found.age)
    }

    /// Afterwards the profile is there, and will not be swept for a while.
    pub async fn load(&self, profile: &Profile) -> Result<()> {
        touch(&profile.name).map_err(|error| Error::io("note the use of a profile", error))?;
        if self.age(profile).is_some() {
            return Ok(());
        }
        self.run("-r", &profile.text).await
    }

    /// Removes profiles that nobody uses and nobody has asked for lately. `is_used`: by a container,
    /// which need not have a process.
    pub async fn sweep(&self, is_used: impl Fn(&str) -> bool) -> Result<usize> {
        let mut removed = 0;
        for found in loaded().filter(|found| found.age > self.keep) {
            // Whoever it confines would be free without it.
            if !is_used(&found.name) && !confines(&found.name) {
                let text = format!("profile {} {{}}\n", found.name);
                self.run("-R", &text).await?;
                let _ = std::fs::remove_file(Path::new(ASKED).join(&found.name));
                removed += 1;
            }
        }
        Ok(removed)
    }

    async fn run(&self, what: &str, text: &str) -> Result<()> {
        let failed = |problem: String| Error::Engine {
            code: ReasonCode::EngineApparmor,
            step: "load an AppArmor profile".into(),
            problem,
            hint: Some("does `aa-status` work? it needs CAP_MAC_ADMIN".into()),
        };
        let said = feed(&self.parser, what, text).await;
        let said = said.map_err(|error| failed(error.to_string()))?;
        if said.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&said.stderr);
        Err(failed(
            words.trim().lines().last().unwrap_or_default().into(),
        ))
    }
}

/// Through its input, so that no file of ours is left and none can be changed in between.
async fn feed(parser: &Path, what: &str, text: &str) -> io::Result<std::process::Output> {
    use tokio::io::AsyncWriteExt;
    let mut child = tokio::process::Command::new(parser)
        .args(["--quiet", "--skip-cache", what])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes()).await?;
    }
    child.wait_with_output().await
}

struct Loaded {
    name: String,
    age: Duration,
}

/// Profiles of ours. The kernel keeps them in folders called by name and number.
fn loaded() -> impl Iterator<Item = Loaded> {
    let entries = std::fs::read_dir(LOADED).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        let name = file.rsplit_once('.').map_or(&*file, |(name, _)| name);
        let digest = name.strip_prefix(PREFIX)?;
        if digest.len() != 32 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let asked = std::fs::metadata(Path::new(ASKED).join(name));
        let asked = asked.or_else(|_| entry.metadata()).ok()?.modified().ok()?;
        Some(Loaded {
            name: name.to_owned(),
            age: SystemTime::now().duration_since(asked).unwrap_or_default(),
        })
    })
}

fn touch(name: &str) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let mut folder = std::fs::DirBuilder::new();
    folder.recursive(true).mode(0o700).create(ASKED)?;
    let file = std::fs::File::create(Path::new(ASKED).join(name))?;
    file.set_modified(SystemTime::now())
}

fn confines(name: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.into_iter().any(|process| {
        let label = std::fs::read_to_string(process.path().join("attr/current"));
        label.is_ok_and(|label| label.split([' ', '\n', '/', '&']).any(|part| part == name))
    })
}
