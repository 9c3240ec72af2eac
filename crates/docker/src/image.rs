//! The image that a container starts from.

use std::fmt::Write;

use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use brig_sandbox::{Error, Result};
use futures_util::StreamExt;

use crate::backend::Progress;
use crate::engine::{Engine, failure};

/// Used when no image is named: the first of these that the engine has.
pub const USUAL: [&str; 7] = [
    "brig-python:latest",
    "python:3.13-slim",
    "python:3.12-slim",
    "python:3.11-slim",
    "python:3-slim",
    "python:3",
    "python:latest",
];

/// An image that the engine has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub env: Vec<(String, String)>,
    /// Where it wants volumes, which nothing would limit.
    pub volumes: Vec<String>,
}

/// A name that reaches the engine as it is, in a path.
pub fn check(name: &str) -> Result<()> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let odd = name.is_empty()
        || name.len() > 512
        || !name.chars().all(harmless)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || name.contains("..")
        || name.contains("//");
    if odd {
        return Err(Error::InvalidConfig {
            what: "image",
            problem: format!(
                "`{}` is not the name of one; such as python:3.13-slim",
                name.escape_debug()
            ),
        });
    }
    Ok(())
}

/// The image of that name, fetched if the engine lacks it; without a name, a usual one.
pub async fn resolve(
    engine: &Engine,
    name: Option<&str>,
    progress: Option<&Progress>,
) -> Result<Image> {
    let Some(name) = name else {
        return usual(engine).await;
    };
    check(name)?;
    if let Some(image) = inspect(engine, name).await? {
        return Ok(image);
    }
    // A registry would take it for a repository called `sha256`.
    if is_id(name) {
        return Err(missing(
            name,
            "the engine does not have it, and an id can't be fetched",
        ));
    }
    pull(engine, name, progress).await?;
    inspect(engine, name)
        .await?
        .ok_or_else(|| missing(name, "the engine fetched something else"))
}

fn is_id(name: &str) -> bool {
    name.starts_with("sha256:")
}

async fn usual(engine: &Engine) -> Result<Image> {
    for name in USUAL {
        if let Some(image) = inspect(engine, name).await? {
            return Ok(image);
        }
    }
    Err(Error::Engine {
        code: "engine.image",
        step: "choose an image".into(),
        problem: format!("the engine has none of {}", USUAL.join(", ")),
        hint: Some(format!(
            "docker pull {}, or name another with --image",
            USUAL[1]
        )),
    })
}

async fn inspect(engine: &Engine, name: &str) -> Result<Option<Image>> {
    let found = engine
        .find("look at an image", engine.docker.inspect_image(name))
        .await?;
    found.map(|found| read(name, found)).transpose()
}

fn read(name: &str, found: ImageInspect) -> Result<Image> {
    let config = found.config.unwrap_or_default();
    let env = config.env.unwrap_or_default();
    let split = |text: &String| {
        text.split_once('=')
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let image = Image {
        id: found.id.unwrap_or_default(),
        env: env.iter().filter_map(split).collect(),
        volumes: config.volumes.unwrap_or_default(),
    };
    if found.os.as_deref().is_some_and(|os| os != "linux") {
        return Err(missing(name, "it is not for Linux"));
    }
    if let Some(given) = found
        .architecture
        .filter(|given| !given.is_empty() && !is_ours(given))
    {
        return Err(missing(name, &format!("it is for {given} processors")));
    }
    Ok(image)
}

/// In the words of images, or of engines.
pub fn is_ours(architecture: &str) -> bool {
    match std::env::consts::ARCH {
        "x86_64" => matches!(architecture, "amd64" | "x86_64"),
        "aarch64" => matches!(architecture, "arm64" | "aarch64"),
        other => architecture == other,
    }
}

async fn pull(engine: &Engine, name: &str, progress: Option<&Progress>) -> Result<()> {
    let (repository, tag) = split(name);
    let options = CreateImageOptionsBuilder::new()
        .from_image(repository)
        .tag(tag)
        .build();
    let tell = |text: &str| {
        if let Some(progress) = progress {
            progress.tell(text);
        }
    };
    tell(&format!("fetching the image {name}"));
    let mut answers = engine
        .docker
        .create_image(Some(options), None, None)
        .boxed();
    loop {
        // Of a long download only the pauses are limited.
        let answer = tokio::time::timeout(engine.patience, answers.next()).await;
        match answer {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(info))) => {
                if let Some(line) = line(&info) {
                    tell(&line);
                }
            }
            Ok(Some(Err(trouble))) => {
                let failed = failure(&format!("fetch the image `{name}`"), &trouble);
                return Err(match failed {
                    Error::Engine {
                        code: "engine.failed",
                        problem,
                        ..
                    } => missing(name, &problem),
                    other => other,
                });
            }
            Err(_) => return Err(missing(name, "the download stands still")),
        }
    }
}

/// Repository and what is wanted of it. A digest is one; a port is no tag.
fn split(name: &str) -> (&str, &str) {
    if let Some((repository, digest)) = name.split_once('@') {
        return (repository, digest);
    }
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, "latest"),
    }
}

fn line(info: &CreateImageInfo) -> Option<String> {
    let mut line = String::new();
    if let Some(id) = &info.id {
        let _ = write!(line, "{id}: ");
    }
    line.push_str(info.status.as_deref()?);
    let detail = info.progress_detail.as_ref();
    if let Some((current, total)) = detail.and_then(|detail| detail.current.zip(detail.total))
        && total > 0
    {
        let _ = write!(line, " {} %", current * 100 / total);
    }
    Some(line)
}

fn missing(name: &str, problem: &str) -> Error {
    Error::Engine {
        code: "engine.image",
        step: format!("get the image `{name}`"),
        problem: problem.into(),
        hint: Some(
            "docker images shows those there are; without a registry: docker load -i FILE, or \
             docker import FILE NAME"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart() {
        for (name, parts) in [
            ("python", ("python", "latest")),
            ("python:3.13-slim", ("python", "3.13-slim")),
            ("localhost:5000/a/b", ("localhost:5000/a/b", "latest")),
            ("localhost:5000/a/b:c", ("localhost:5000/a/b", "c")),
            ("a/b@sha256:00ff", ("a/b", "sha256:00ff")),
        ] {
            assert_eq!(split(name), parts);
            assert!(check(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_name_is_nothing_but_a_name() {
        for name in [
            "",
            "-v",
            "../containers",
            "a b",
            "a?b",
            "a/../b",
            "a//b",
            "a\n",
            "ä",
            ".hidden",
            "a%2e",
        ] {
            assert!(check(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_image_for_another_machine_is_refused() {
        let image = |os: &str, architecture: &str| {
            read(
                "x",
                ImageInspect {
                    id: Some("sha256:1".into()),
                    os: Some(os.into()),
                    architecture: Some(architecture.into()),
                    ..ImageInspect::default()
                },
            )
        };
        assert!(image("linux", std::env::consts::ARCH).is_ok());
        assert!(image("linux", "s390x").is_err());
        assert!(image("windows", std::env::consts::ARCH).is_err());
    }
}
