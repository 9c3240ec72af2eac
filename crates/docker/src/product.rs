//! Docker and Podman, and how they differ: one column each.

use bollard::models::SystemVersion;

/// What an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Product {
    #[default]
    Docker,
    /// Its API is Docker's, with exceptions.
    Podman,
}

/// What is different.
#[derive(Debug)]
pub(crate) struct Differences {
    pub name: &'static str,
    /// The oldest version: of the API, which all have, and of the product, where the API does not tell.
    pub oldest: (u32, u32),
    pub oldest_name: &'static str,
    /// The seccomp profile and `/etc/hosts` are files of this machine, and not text or a request.
    pub needs_files: bool,
    /// A tmpfs takes ids and a number of files. Without, it can only be given to the container's user.
    pub tmpfs_ids: bool,
    /// A tmpfs can be told to record every access.
    pub tmpfs_access: bool,
    /// Lists of hidden paths are a member of the request, and not a security option.
    pub masked_paths: bool,
    /// Other places that are writable, and not limited, although the root is read-only.
    pub writable_places: &'static [&'static str],
    /// The runtime of a container can be requested. Without, all have the engine's default.
    pub chooses_runtime: bool,
    /// The most processes of the container's user on the machine, where the engine would set a number that it
    /// may not be allowed to set.
    pub user_processes: Option<u64>,
    /// The AppArmor profile of containers that have no other. Without a name, the engine chooses.
    pub apparmor: Option<&'static str>,
}

const DOCKER: Differences = Differences {
    name: "Docker",
    oldest: (1, 41),
    oldest_name: "Docker 20.10",
    needs_files: false,
    tmpfs_ids: true,
    tmpfs_access: true,
    masked_paths: true,
    writable_places: &[],
    chooses_runtime: true,
    user_processes: None,
    apparmor: Some("docker-default"),
};

const PODMAN: Differences = Differences {
    name: "Podman",
    oldest: (4, 3),
    oldest_name: "Podman 4.3",
    needs_files: true,
    tmpfs_ids: false,
    tmpfs_access: false,
    masked_paths: false,
    writable_places: &["/run", "/var/tmp"],
    chooses_runtime: false,
    user_processes: Some(32768),
    apparmor: None,
};

impl Product {
    /// What an engine is, and its version that has to be new enough.
    pub(crate) fn of(version: &SystemVersion) -> (Self, String) {
        let components = version.components.iter().flatten();
        let podman = components
            .filter(|component| component.name == "Podman Engine")
            .map(|component| component.version.clone())
            .next_back();
        match podman {
            Some(version) => (Self::Podman, version),
            None => {
                let api = version.api_version.clone();
                (Self::Docker, api.unwrap_or_default())
            }
        }
    }

    pub(crate) fn differences(self) -> &'static Differences {
        match self {
            Self::Docker => &DOCKER,
            Self::Podman => &PODMAN,
        }
    }

    /// Whether a version is new enough.
    pub(crate) fn accepts(self, version: &str) -> bool {
        number(version) >= Some(self.differences().oldest)
    }
}

/// The first two numbers of `1.41` or `4.3.1`.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?;
    // Such as `0-rc1`.
    let minor = minor.split('-').next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use bollard::models::SystemVersionComponents;

    use super::*;

    fn version(components: &[(&str, &str)]) -> SystemVersion {
        let component = |(name, version): &(&str, &str)| SystemVersionComponents {
            name: (*name).into(),
            version: (*version).into(),
            ..SystemVersionComponents::default()
        };
        SystemVersion {
            api_version: Some("1.41".into()),
            components: Some(components.iter().map(component).collect()),
            ..SystemVersion::default()
        }
    }

    #[test]
    fn an_engine_is_what_its_components_say() {
        let docker = version(&[("Engine", "20.10.24"), ("containerd", "1.6.20")]);
        assert_eq!(Product::of(&docker), (Product::Docker, "1.41".into()));
        let podman = version(&[("Podman Engine", "4.3.1"), ("Conmon", "conmon 2.1.6")]);
        assert_eq!(Product::of(&podman), (Product::Podman, "4.3.1".into()));
        let silent = SystemVersion::default();
        assert_eq!(Product::of(&silent), (Product::Docker, String::new()));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for new in ["1.41", "1.100", "2.0"] {
            assert!(Product::Docker.accepts(new), "{new}");
        }
        for old in ["1.9", "1.40", "", "x"] {
            assert!(!Product::Docker.accepts(old), "{old}");
        }
        for new in ["4.3.1", "4.10.0", "5.0-rc1", "5.7.0"] {
            assert!(Product::Podman.accepts(new), "{new}");
        }
        for old in ["4.2.9", "3.4.4", "", "podman"] {
            assert!(!Product::Podman.accepts(old), "{old}");
        }
    }
}
