//! The options of the backend: flags, help, checks and documentation are made from these lists.

use std::path::PathBuf;

use brig_sandbox::backend::{BackendKind, OptionSpec, Options, any};
use brig_sandbox::{BackendId, Result};

use crate::address::Address;
use crate::backend::Options as Connect;
use crate::image;

pub(crate) const IMAGE: &str = "image";
pub(crate) const RUNTIME: &str = "runtime";
pub(crate) const PLATFORM: &str = "platform";
const HOST: &str = "host";
const TLS: &str = "tls";
const PROGRAMS: &str = "programs";

/// What can be said of the backend without an engine.
pub static KIND: BackendKind = BackendKind {
    name: "docker",
    title: "Docker",
    options: &[
        OptionSpec {
            name: IMAGE,
            value_name: "NAME",
            help: "The container image [default: the first common Python image that the engine has]",
            check: image::check_name,
        },
        OptionSpec {
            name: RUNTIME,
            value_name: "NAME",
            help: "The container runtime: runc, crun, gvisor, kata, another one that the engine \
                   knows, or auto, the strongest available [default: auto]",
            // Which ones there are is asked of the engine.
            check: any,
        },
        OptionSpec {
            name: PLATFORM,
            value_name: "OS/ARCH[/VARIANT]",
            help: "The platform of the image, such as linux/amd64 [default: that of the engine]",
            check: image::check_platform,
        },
    ],
    settings: &[
        OptionSpec {
            name: HOST,
            value_name: "ADDRESS",
            help: "The engine, as in DOCKER_HOST [default: from Brig's environment]",
            // Whether it is acceptable depends on `tls`.
            check: any,
        },
        OptionSpec {
            name: TLS,
            value_name: "DIR",
            help: "The directory with ca.pem, cert.pem and key.pem for this engine",
            check: any,
        },
        OptionSpec {
            name: PROGRAMS,
            value_name: "DIR",
            help: "Where ssh and credential helpers are looked for first [default: the directories of PATH that \
                   no sandbox can write to]",
            check: absolute,
        },
    ],
    mounts_scripts: false,
};

fn absolute(directory: &str) -> std::result::Result<(), String> {
    match std::path::Path::new(directory).is_absolute() {
        true => Ok(()),
        false => Err("its path must be absolute".into()),
    }
}

impl Connect {
    /// For an engine of the user's configuration.
    pub fn configured(id: BackendId, settings: &Options) -> Result<Self> {
        KIND.check_settings(&id, settings)?;
        let given = |name: &str| settings.get(name).cloned();
        let address = match settings.get(HOST) {
            Some(host) => Some(Address::parse(host, settings.get(TLS).map(PathBuf::from))?),
            None => None,
        };
        Ok(Self {
            id,
            address,
            image: given(IMAGE),
            runtime: given(RUNTIME),
            platform: given(PLATFORM),
            programs: given(PROGRAMS).map(PathBuf::from),
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_every_option() {
        let guide = include_str!("../../../docs/guides/docker.md");
        for spec in KIND.options.iter().chain(KIND.settings) {
            let row = format!("| `{}` | {} |\n", spec.name, spec.help);
            assert!(guide.contains(&row), "{row}");
        }
    }

    #[test]
    fn an_engine_of_the_configuration_is_read_or_refused() {
        let id: BackendId = "docker:x".parse().expect("a name");
        let read = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            Connect::configured(id.clone(), &owned.collect())
        };
        let unix = read(&[("host", "unix:///x.sock"), ("image", "a:b")]).expect("valid");
        assert!(matches!(unix.address, Some(Address::Unix(path)) if path.ends_with("x.sock")));
        assert_eq!((unix.id, unix.image.as_deref()), (id.clone(), Some("a:b")));
        let tls = read(&[("host", "tcp://h:2376"), ("tls", "/keys")]).expect("valid");
        assert!(matches!(tls.address, Some(Address::Tls { .. })));
        for bad in [
            &[("host", "tcp://h:2375")][..],
            &[("host", "x")],
            &[("image", "../x")],
            &[("programs", "bin")],
            &[("unknown", "x")],
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
