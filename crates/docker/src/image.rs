//! The image that a container starts from.

use std::fmt::Write;
use std::path::Path;

use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use brig_reason::ReasonCode;
use brig_sandbox::{Error, HostPrograms, Result};
use futures_util::StreamExt;

use crate::backend::Progress;
use crate::credentials::{self, Credentials};
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
pub(crate) struct Image {
    pub id: String,
    pub env: Vec<(String, String)>,
    /// Its volumes, which the engine would create without a limit.
    pub volumes: Vec<String>,
    /// Who its programs are to run as, or nothing.
    pub user: String,
    /// Where they are to start, or nothing.
    pub workdir: String,
    /// What is to start them.
    pub entrypoint: Vec<String>,
}

/// Checks a name, which becomes a part of a URL path.
pub(crate) fn check(name: &str) -> Result<()> {
    check_name(name).map_err(|problem| Error::InvalidConfig {
        what: "image",
        problem,
    })
}

pub(crate) fn check_name(name: &str) -> std::result::Result<(), String> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let odd = name.is_empty()
        || name.len() > 512
        || !name.chars().all(harmless)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || name.contains("..")
        || name.contains("//")
        || has_capitals(name);
    if odd {
        return Err(format!(
            "`{}` is not a valid image name; use a name such as python:3.13-slim",
            name.escape_debug()
        ));
    }
    Ok(())
}

/// Engines take a first part with a capital for the host of a registry. Only tags may have them.
fn has_capitals(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or_default();
    let path = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => path,
        _ => name,
    };
    path.contains(|c: char| c.is_ascii_uppercase())
}

/// Checks a platform: an operating system, an architecture, and a variant if there are several.
pub(crate) fn check_platform(platform: &str) -> std::result::Result<(), String> {
    let parts: Vec<&str> = platform.split('/').collect();
    let word = |part: &&str| {
        let mut letters = part.chars();
        let known = letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
        known && (1..=32).contains(&part.len())
    };
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(word) {
        return Err(format!(
            "`{}` is not a platform; use one such as linux/amd64",
            platform.escape_debug()
        ));
    }
    if parts[0] != "linux" || !is_ours(parts[1]) {
        return Err(format!(
            "an image for {platform} can't be run: the guest is built for Linux on {}",
            std::env::consts::ARCH
        ));
    }
    Ok(())
}

/// An image as it was asked for.
#[derive(Debug)]
pub(crate) struct Requested<'a> {
    /// Without a name, a usual one.
    pub name: Option<&'a str>,
    pub platform: Option<&'a str>,
    /// The directory with the credentials of the user.
    pub logins: Option<&'a Path>,
    /// Where credential helpers are looked for.
    pub programs: &'a HostPrograms,
    pub progress: Option<&'a Progress>,
}

impl Requested<'_> {
    /// The image, pulled if the engine lacks it, or has it for another platform.
    pub(crate) async fn resolve(&self, engine: &Engine) -> Result<Image> {
        let Some(name) = self.name else {
            return usual(engine).await;
        };
        check(name)?;
        if let Some(platform) = self.platform {
            check_platform(platform).map_err(|problem| Error::InvalidConfig {
                what: "platform",
                problem,
            })?;
        }
        if let Some(found) = inspect(engine, name).await?
            && self.platform.is_none_or(|platform| fits(&found, platform))
        {
            return read(name, found);
        }
        // A registry would treat it as a repository named `sha256`.
        if is_id(name) {
            return Err(missing(
                name,
                "the engine does not have it, and an image cannot be pulled by id",
            ));
        }
        self.pull(engine, name).await?;
        let pulled = inspect(engine, name)
            .await?
            .ok_or_else(|| missing(name, "the engine pulled a different image"))?;
        if let Some(platform) = self.platform.filter(|platform| !fits(&pulled, platform)) {
            return Err(missing(name, &format!("it is not for {platform}")));
        }
        read(name, pulled)
    }

    async fn pull(&self, engine: &Engine, name: &str) -> Result<()> {
        let (repository, tag) = split(name);
        let options = CreateImageOptionsBuilder::new()
            .from_image(repository)
            .tag(tag)
            .platform(self.platform.unwrap_or_default())
            .build();
        let tell = |text: &str| {
            if let Some(progress) = self.progress {
                progress.tell(text);
            }
        };
        let credentials = credentials::of_image(self.logins, name, self.programs).await;
        let credentials = credentials.map_err(|problem| Error::Engine {
            code: ReasonCode::EngineImage,
            step: format!("get the credentials for the image `{name}`"),
            problem,
            hint: Some(
                "run `docker login` again, install the helper for all users, or pull the image with `docker pull`"
                    .into(),
            ),
        })?;
        tell(&format!("pulling the image {name}"));
        let header = credentials.map(Credentials::into_header);
        let mut answers = engine
            .docker
            .create_image(Some(options), None, header)
            .boxed();
        loop {
            // A timeout for each piece, because a download may take long.
            let answer = tokio::time::timeout(engine.patience, answers.next()).await;
            match answer {
                Ok(None) => return Ok(()),
                Ok(Some(Ok(info))) => {
                    if let Some(line) = line(&info) {
                        tell(&line);
                    }
                }
                Ok(Some(Err(trouble))) => {
                    let failed = failure(&format!("pull the image `{name}`"), &trouble);
                    return Err(match failed {
                        Error::Engine {
                            code: ReasonCode::EngineFailed,
                            problem,
                            ..
                        } => missing(name, &problem),
                        other => other,
                    });
                }
                Err(_) => return Err(missing(name, "the download has stalled")),
            }
        }
    }
}

/// Whether an image is for this platform. What either does not name is not compared.
fn fits(image: &ImageInspect, platform: &str) -> bool {
    let found = [&image.os, &image.architecture, &image.variant];
    let mut pairs = platform.split('/').zip(found);
    pairs.all(|(wanted, found)| match found.as_deref() {
        None | Some("") => true,
        Some(found) => found == wanted || (is_ours(found) && is_ours(wanted)),
    })
}

fn is_id(name: &str) -> bool {
    name.starts_with("sha256:")
}

async fn usual(engine: &Engine) -> Result<Image> {
    for name in USUAL {
        if let Some(image) = inspect(engine, name).await? {
            return read(name, image);
        }
    }
    Err(Error::Engine {
        code: ReasonCode::EngineImage,
        step: "choose an image".into(),
        problem: format!("the engine has none of {}", USUAL.join(", ")),
        hint: Some(format!(
            "docker pull {}, or choose another image with --image",
            USUAL[1]
        )),
    })
}

async fn inspect(engine: &Engine, name: &str) -> Result<Option<ImageInspect>> {
    let inspect = engine.docker.inspect_image(name);
    engine.find("inspect an image", inspect).await
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
        volumes: cleaned(config.volumes.unwrap_or_default()),
        user: config.user.unwrap_or_default(),
        workdir: config.working_dir.unwrap_or_default(),
        entrypoint: config.entrypoint.unwrap_or_default(),
    };
    if found.os.as_deref().is_some_and(|os| os != "linux") {
        return Err(missing(name, "it is not for Linux"));
    }
    if let Some(given) = found
        .architecture
        .filter(|given| !given.is_empty() && !is_ours(given))
    {
        return Err(missing(name, &format!("it is built for {given}")));
    }
    Ok(image)
}

/// The places of volumes as an engine resolves them. An image may name `/a/../b`, which the engine compares as `/b`
/// with what is mounted there already.
fn cleaned(volumes: Vec<String>) -> Vec<String> {
    let clean = |path: String| {
        // The engine refuses one that is relative.
        let Some(rest) = path.strip_prefix('/') else {
            return path;
        };
        let mut parts = Vec::new();
        for part in rest.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                name => parts.push(name),
            }
        }
        format!("/{}", parts.join("/"))
    };
    let mut places: Vec<String> = volumes.into_iter().map(clean).collect();
    places.sort();
    places.dedup();
    places
}

/// The architecture names of images and of engines.
pub(crate) fn is_ours(architecture: &str) -> bool {
    match std::env::consts::ARCH {
        "x86_64" => matches!(architecture, "amd64" | "x86_64"),
        "aarch64" => matches!(architecture, "arm64" | "aarch64"),
        other => architecture == other,
    }
}

/// Repository, and tag or digest. A port is not a tag.
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
        code: ReasonCode::EngineImage,
        step: format!("get the image `{name}`"),
        problem: problem.into(),
        hint: Some(
            "run `docker images` to list them; without a registry: docker load -i FILE, or \
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
    fn a_platform_is_one_that_can_run_here() {
        let own = std::env::consts::ARCH;
        let image = |architecture: &str, variant: Option<&str>| ImageInspect {
            os: Some("linux".into()),
            architecture: Some(architecture.into()),
            variant: variant.map(str::to_owned),
            ..ImageInspect::default()
        };
        for (platform, variant, fitting) in [
            (format!("linux/{own}"), None, true),
            (format!("linux/{own}/v2"), Some("v2"), true),
            (format!("linux/{own}/v2"), Some("v3"), false),
        ] {
            assert_eq!(check_platform(&platform), Ok(()));
            assert_eq!(fits(&image(own, variant), &platform), fitting, "{platform}");
        }
        assert!(!fits(&image("s390x", None), &format!("linux/{own}")));
        let windows = format!("windows/{own}");
        for bad in [
            "",
            "linux",
            "linux/s390x",
            "linux/amd64/v1/x",
            "linux//",
            "linux/a b",
            &windows,
        ] {
            assert!(check_platform(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_volume_is_where_the_engine_finds_it() {
        for (named, place) in [
            ("/data", "/data"),
            ("//data", "/data"),
            ("/data/", "/data"),
            ("/./data", "/data"),
            ("/usr/../data", "/data"),
            ("/../../data/./x/..", "/data"),
            ("/", "/"),
            ("/..", "/"),
            ("data", "data"),
        ] {
            assert_eq!(cleaned(vec![named.into()]), [place], "{named}");
        }
        let twice = ["/data/", "/data"].map(str::to_owned);
        assert_eq!(cleaned(twice.into()), ["/data"]);
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
