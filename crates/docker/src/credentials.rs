//! Credentials of `docker login` for the registry of an image: from `config.json`, or from the credential
//! helper that it names. They are sent to the engine with one pull, for that registry only.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use brig_sandbox::HostPrograms;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// The largest file, and the longest answer of a helper.
const LARGEST: u64 = 1 << 20;
const LONGEST: u64 = 64 * 1024;

/// A helper may ask its user for permission.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `docker login` calls the registry of images without a host.
const HUB: &str = "https://index.docker.io/v1/";

/// The name of a user whose secret is an identity token.
const TOKEN_USER: &str = "<token>";

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: HashMap<String, Auth>,
    creds_store: String,
    cred_helpers: HashMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// For one registry. Not to be seen in logs.
pub(crate) struct Credentials(DockerCredentials);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    pub(crate) fn into_header(self) -> DockerCredentials {
        self.0
    }
}

/// The registry of an image, as `docker login` calls it.
fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => match host {
            "docker.io" | "index.docker.io" => HUB,
            host => host,
        },
        _ => HUB,
    }
}

/// The credentials for the registry of an image, if the user has some. `directory`: that of `config.json`.
/// Errors contain nothing of the files.
pub(crate) async fn of_image(
    directory: Option<&Path>,
    image: &str,
    programs: &HostPrograms,
) -> Result<Option<Credentials>, String> {
    let Some(path) = directory.map(|directory| directory.join("config.json")) else {
        return Ok(None);
    };
    let Some(config) = read(&path)? else {
        return Ok(None);
    };
    let server = registry(image);
    let helper = config
        .cred_helpers
        .get(server)
        .unwrap_or(&config.creds_store);
    let found = match helper.as_str() {
        "" => of_file(&config.auths, server, &path)?,
        helper => of_helper(helper, server, programs).await?,
    };
    Ok(found.map(|found| {
        Credentials(DockerCredentials {
            serveraddress: Some(server.to_owned()),
            ..found
        })
    }))
}

fn read(path: &PathBuf) -> Result<Option<Config>, String> {
    let text = match brig_input::read(path, LARGEST) {
        Ok(text) => text,
        Err(_) if !path.exists() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    // Without the text of the error, which may quote a secret.
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        format!(
            "{} is invalid at line {}, column {}",
            path.display(),
            error.line(),
            error.column()
        )
    })
}

/// Keys may be URLs, as old versions wrote them.
fn of_file(
    auths: &HashMap<String, Auth>,
    server: &str,
    path: &Path,
) -> Result<Option<DockerCredentials>, String> {
    let host = |key: &str| {
        let rest = key
            .trim_start_matches("https://")
            .trim_start_matches("http://");
        rest.split('/').next().unwrap_or_default().to_owned()
    };
    let found = auths.get(server).or_else(|| {
        let mut others = auths.iter();
        let found = others.find(|(key, _)| server != HUB && host(key) == server);
        found.map(|(_, auth)| auth)
    });
    let Some(found) = found else {
        return Ok(None);
    };
    let (mut username, mut password) = (found.username.clone(), found.password.clone());
    if !found.auth.is_empty() {
        let invalid = || format!("`auth` of {server} in {} is invalid", path.display());
        let bytes = STANDARD.decode(&found.auth).map_err(|_| invalid())?;
        let text = String::from_utf8(bytes).map_err(|_| invalid())?;
        let (user, secret) = text.split_once(':').ok_or_else(invalid)?;
        (username, password) = (user.into(), secret.trim_end_matches('\0').into());
    }
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let found = DockerCredentials {
        username: given(&username),
        password: given(&password),
        identitytoken: given(&found.identitytoken),
        registrytoken: given(&found.registrytoken),
        ..DockerCredentials::default()
    };
    // `docker login` with a helper leaves empty entries here.
    Ok((found != DockerCredentials::default()).then_some(found))
}

async fn of_helper(
    helper: &str,
    server: &str,
    programs: &HostPrograms,
) -> Result<Option<DockerCredentials>, String> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !helper.chars().all(harmless) {
        return Err("the name of the credential helper is invalid".into());
    }
    let program = format!("docker-credential-{helper}");
    let command = programs.command(&program)?;
    let asked = tokio::time::timeout(PATIENCE, ask(command.into(), server)).await;
    let (ok, text) = match asked {
        Ok(answer) => answer.map_err(|error| format!("{program}: {error}"))?,
        Err(_) => return Err(format!("{program} does not answer")),
    };
    if !ok {
        // The message that helpers agree on.
        return match text.starts_with(b"credentials not found") {
            true => Ok(None),
            false => Err(format!("{program} failed")),
        };
    }
    let answer: Answer =
        serde_json::from_slice(&text).map_err(|_| format!("the answer of {program} is invalid"))?;
    Ok(Some(if answer.username == TOKEN_USER {
        DockerCredentials {
            identitytoken: Some(answer.secret),
            ..DockerCredentials::default()
        }
    } else {
        DockerCredentials {
            username: Some(answer.username),
            password: Some(answer.secret),
            ..DockerCredentials::default()
        }
    }))
}

/// Whether it succeeded, and what it printed.
async fn ask(mut command: Command, server: &str) -> std::io::Result<(bool, Vec<u8>)> {
    let mut child = command
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // One that does not read it may know the answer nevertheless.
        let _ = input.write_all(server.as_bytes()).await;
    }
    let mut text = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(LONGEST).read_to_end(&mut text).await?;
    }
    let status = child.wait().await?;
    Ok((status.success(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(config: &str, image: &str) -> Result<Option<DockerCredentials>, String> {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::write(folder.path().join("config.json"), config).expect("a file");
        let found = of_image(Some(folder.path()), image, &HostPrograms::default()).await?;
        Ok(found.map(Credentials::into_header))
    }

    #[test]
    fn an_image_names_its_registry() {
        for (image, server) in [
            ("python:3.13", HUB),
            ("library/python", HUB),
            ("docker.io/library/python", HUB),
            ("localhost/a", "localhost"),
            ("localhost:5000/a/b:c", "localhost:5000"),
            ("ghcr.io/a/b@sha256:00", "ghcr.io"),
        ] {
            assert_eq!(registry(image), server, "{image}");
        }
    }

    #[tokio::test]
    async fn credentials_are_only_for_their_registry() {
        // me:secret
        let config = r#"{"auths": {
            "one.example": {"auth": "bWU6c2VjcmV0"},
            "https://two.example/v1/": {"auth": "bWU6c2VjcmV0"},
            "three.example:5000": {"identitytoken": "token"},
            "empty.example": {}
        }}"#;
        for image in ["one.example/a", "two.example/a"] {
            let found = found(config, image).await.expect("valid").expect(image);
            assert_eq!(found.username.as_deref(), Some("me"));
            assert_eq!(found.password.as_deref(), Some("secret"));
            assert_eq!(found.serveraddress.as_deref(), image.split('/').next());
        }
        let token = found(config, "three.example:5000/a").await.expect("valid");
        assert_eq!(
            token.expect("a token").identitytoken.as_deref(),
            Some("token")
        );
        for image in [
            "a",
            "one.example:80/a",
            "one.example.evil.example/a",
            "evil.example/one.example/a",
            "three.example/a",
            "empty.example/a",
        ] {
            assert_eq!(found(config, image).await, Ok(None), "{image}");
        }
    }

    #[tokio::test]
    async fn an_error_does_not_quote_the_file() {
        for config in [
            r#"{"auths": {"one.example": "bWU6c2VjcmV0"}}"#,
            r#"{"auths": {"one.example": {"auth": "c2VjcmV0"}}}"#,
            r#"{"auths": {"one.example": {"auth": "%%secret"}}}"#,
            r#"{"credsStore": "../secret"}"#,
            "secret",
        ] {
            let error = found(config, "one.example/a").await.expect_err(config);
            assert!(
                !error.contains("c2VjcmV0") && !error.contains("secret"),
                "{error}"
            );
        }
        assert!(
            of_image(
                Some(Path::new("/nonexistent")),
                "a",
                &HostPrograms::default()
            )
            .await
            .expect("none")
            .is_none()
        );
        let one = Credentials(DockerCredentials {
            password: Some("secret".into()),
            ..DockerCredentials::default()
        });
        assert_eq!(format!("{one:?}"), "Credentials");
    }
}
