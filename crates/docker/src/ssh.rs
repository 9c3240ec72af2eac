//! An engine behind `ssh`, reached as `docker` does it: each connection is a process
//! `ssh HOST docker system dial-stdio`. Requests go to a socket of this process, which only its user can open,
//! and from there through such a process.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brig_sandbox::HostPrograms;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::own_directory::OwnDirectory;

/// How many connections there are at most. More wait.
const CONNECTIONS: usize = 64;

/// How much of what `ssh` says is kept.
const KEPT: u64 = 2048;

/// How long the client of a connection without an answer waits for the reason.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// No questions, for which there may be no terminal; and an end if the other side is gone.
const OPTIONS: [&str; 4] = [
    "BatchMode=yes",
    "ConnectTimeout=30",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
];

/// Where `ssh` connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshTarget {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

impl SshTarget {
    /// What follows `ssh://`: `[USER@]HOST[:PORT]`. Nothing that `ssh` could take for an option.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or("`]` is missing")?;
                host.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| "the address in brackets is invalid")?;
                (
                    host,
                    port.strip_prefix(':').or((!port.is_empty()).then_some("x")),
                )
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = port.map(str::parse).transpose();
        let word = |text: &str| {
            !text.is_empty()
                && text.len() <= 255
                && !text.starts_with('-')
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-:".contains(c))
        };
        if !word(host) || !user.is_none_or(word) {
            return Err("give ssh://[user@]host[:port]");
        }
        Ok(Self {
            user: user.map(str::to_owned),
            host: host.into(),
            port: port.map_err(|_| "the port is invalid")?,
        })
    }

    fn command(&self, programs: &HostPrograms) -> Result<Command, String> {
        let mut command = Command::from(programs.command("ssh")?);
        for option in OPTIONS {
            command.args(["-o", option]);
        }
        command.arg("-T");
        if let Some(user) = &self.user {
            command.args(["-l", user]);
        }
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(["--", &self.host, "docker", "system", "dial-stdio"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.kill_on_drop(true);
        Ok(command)
    }
}

impl fmt::Display for SshTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The socket that leads to the engine, as long as this lives.
#[derive(Debug)]
pub(crate) struct Forwarder {
    directory: OwnDirectory,
    serving: JoinHandle<()>,
    /// What the last `ssh` that ended has said.
    words: Arc<Mutex<String>>,
}

impl Forwarder {
    /// To be called in a runtime.
    pub(crate) fn start(target: &SshTarget, programs: &HostPrograms) -> io::Result<Self> {
        // Found once, so that it is the same for every connection.
        let command = target.command(programs).map_err(io::Error::other)?;
        let command = Arc::new(Mutex::new(command));
        let directory = OwnDirectory::make("brig-ssh-")?;
        let listener = UnixListener::bind(directory.path().join("socket"))?;
        let words = Arc::<Mutex<String>>::default();
        let told = Arc::clone(&words);
        let serving = tokio::spawn(async move {
            let free = Arc::new(Semaphore::new(CONNECTIONS));
            // Ended with this task.
            let mut connections = JoinSet::new();
            while let Ok(permit) = Arc::clone(&free).acquire_owned().await
                && let Ok((client, _)) = listener.accept().await
            {
                let (command, told) = (Arc::clone(&command), Arc::clone(&told));
                connections.spawn(async move {
                    let _permit = permit;
                    let keep = |said: String| {
                        if !said.is_empty() {
                            *told.lock().unwrap_or_else(PoisonError::into_inner) = said;
                        }
                    };
                    if let Err(error) = forward(client, &command, &keep).await {
                        keep(format!("ssh: {error}"));
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            directory,
            serving,
            words,
        })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Why it failed, if `ssh` has said so.
    pub(crate) fn words(&self) -> String {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.clone()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One connection, until either side ends it. `keep` is called with what `ssh` said.
async fn forward(
    mut client: UnixStream,
    command: &Mutex<Command>,
    keep: &(impl Fn(String) + Sync),
) -> io::Result<()> {
    let mut child = {
        let mut command = command.lock().unwrap_or_else(PoisonError::into_inner);
        command.spawn()?
    };
    let (Some(mut input), Some(mut output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("it has no streams"));
    };
    let (mut from_client, mut to_client) = client.split();
    let up = async {
        let _ = copy(&mut from_client, &mut input).await;
        drop(input);
    };
    let said = async {
        let mut words = Vec::new();
        let mut errors = errors.take(KEPT);
        let _ = errors.read_to_end(&mut words).await;
        keep(one_line(&words));
        // It must not be held up by what nobody reads.
        let _ = copy(&mut errors.into_inner(), &mut tokio::io::sink()).await;
    };
    let down = async {
        let mut said = std::pin::pin!(said);
        let mut ended = false;
        let copied = {
            let mut copying = std::pin::pin!(copy(&mut output, &mut to_client));
            tokio::select! {
                copied = &mut copying => copied,
                () = &mut said => { ended = true; copying.await }
            }
        };
        // The client asks for the reason as soon as it sees the end, so the reason comes first. Where the engine
        // has answered there is none to wait for: a shared connection of `ssh` holds its errors open.
        if !ended && matches!(copied, Ok(0)) {
            ended = tokio::time::timeout(LAST_WORDS, &mut said).await.is_ok();
        }
        let _ = to_client.shutdown().await;
        if !ended {
            said.await;
        }
    };
    // Once the engine's side has ended, nothing more comes from this one.
    tokio::select! {
        () = down => {}
        () = async { up.await; std::future::pending::<()>().await } => {}
    }
    Ok(())
}

fn one_line(words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    let printable = words
        .trim()
        .chars()
        .filter(|c| !c.is_control() || *c == '\n');
    printable.collect::<String>().replace('\n', "; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_never_an_option_or_a_command() {
        for (text, shown) in [
            ("engine", "engine"),
            ("me@engine:2222", "me@engine:2222"),
            ("me@10.0.0.1/", "me@10.0.0.1"),
            ("[::1]:22", "[::1]:22"),
            ("[::1]", "[::1]"),
        ] {
            let target = SshTarget::parse(text).expect(text);
            assert_eq!(target.to_string(), shown);
        }
        for text in [
            "",
            "@engine",
            "-oProxyCommand=x",
            "me@-oProxyCommand=x",
            "-l@engine",
            "engine;x",
            "engine x",
            "engine/var/run/docker.sock",
            "engine:x",
            "engine:70000",
            "a:b@engine:",
            "$(x)@engine",
            "[::1]x",
            "[engine]",
        ] {
            assert!(SshTarget::parse(text).is_err(), "{text}");
        }
        let target = SshTarget::parse("me@engine:22").expect("valid");
        let folder = tempfile::tempdir().expect("folder");
        let program = folder.path().join("ssh");
        std::fs::write(&program, "").expect("a program");
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, all).expect("a mode");
        let none = HostPrograms::default();
        let problem = target.command(&none).expect_err("nowhere");
        assert!(problem.contains("`ssh`"), "{problem}");
        let command = target.command(&none.first_in(Some(folder.path().into())));
        let command = command.expect("ssh");
        let words: Vec<_> = command.as_std().get_args().skip(8).collect();
        let expected = "-T -l me -p 22 -- engine docker system dial-stdio";
        assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
    }
}
