//! Whether a container runs on the runtime that was requested: an engine may ignore that. What the engine says
//! is compared, and the kernel that the guest sees.

use brig_reason::ReasonCode;
use brig_sandbox::{Error, Result};
use brig_wire::KernelIdentity;

use crate::engine::Facts;
use crate::owner::boot_id;
use crate::runtime::{Kind, Runtime};

/// What Podman calls every runtime.
const UNSPECIFIED: &str = "oci";

/// What the kernel of a container must be, or must not be.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedKernel {
    runtime: Runtime,
    /// The release of the engine's kernel; empty if it does not tell.
    engine: String,
    /// Of this machine's kernel, which may be the engine's.
    boot_id: String,
}

impl ExpectedKernel {
    pub(crate) fn new(runtime: &Runtime, facts: &Facts) -> Self {
        Self {
            runtime: runtime.clone(),
            engine: facts.kernel.clone(),
            boot_id: boot_id(),
        }
    }

    pub(crate) fn runtime(&self) -> &str {
        &self.runtime.name
    }

    /// A runtime with a kernel of its own must not show the engine's, and the others must.
    pub(crate) fn check(&self, seen: Option<&KernelIdentity>) -> Result<()> {
        let Some(seen) = seen.filter(|seen| !seen.release.is_empty()) else {
            return Err(self.ignored("the guest does not know its kernel"));
        };
        let here = !self.boot_id.is_empty() && seen.boot_id.as_ref() == Some(&self.boot_id);
        let engines = here || seen.release == self.engine;
        match self.runtime.kind {
            Kind::Gvisor | Kind::Kata if self.engine.is_empty() => {
                Err(self.ignored("the engine does not report its kernel"))
            }
            Kind::Gvisor | Kind::Kata if engines => Err(self.ignored(&format!(
                "the container uses the engine's kernel {} instead of its own",
                seen.release
            ))),
            Kind::Plain if !engines && !self.engine.is_empty() => Err(self.ignored(&format!(
                "the container uses kernel {} instead of the engine's kernel {}; a runtime that provides \
                 its own kernel must have gvisor, runsc or kata in its name",
                seen.release, self.engine
            ))),
            _ => Ok(()),
        }
    }

    fn ignored(&self, problem: &str) -> Error {
        ignored(&self.runtime.name, problem)
    }
}

/// Compares what the engine says that it will use. A runtime without a kernel of its own may be unspecified.
pub(crate) fn check_read_back(requested: &str, plain: bool, told: Option<&str>) -> Result<()> {
    match told {
        Some(told) if told == requested => Ok(()),
        Some(UNSPECIFIED) if plain => Ok(()),
        told => Err(ignored(
            requested,
            &format!("the engine uses `{}`", told.unwrap_or_default()),
        )),
    }
}

fn ignored(runtime: &str, problem: &str) -> Error {
    Error::Engine {
        code: ReasonCode::EngineRuntimeIgnored,
        step: format!("check that the container runs on `{runtime}`"),
        problem: problem.into(),
        hint: Some("use an engine that has this runtime, or another one with --runtime".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str = "6.1.0-18-amd64";

    fn checked(kind: Kind, engine: &str, release: &str, boot_id: Option<&str>) -> bool {
        let expected = ExpectedKernel {
            runtime: Runtime {
                name: "x".into(),
                kind,
                without_cgroups: false,
            },
            engine: engine.into(),
            boot_id: "own".into(),
        };
        let seen = KernelIdentity {
            release: release.into(),
            boot_id: boot_id.map(str::to_owned),
        };
        let result = expected.check(Some(&seen));
        if let Err(error) = &result {
            assert_eq!(error.code(), "engine.runtime-ignored");
        }
        assert!(expected.check(None).is_err());
        result.is_ok()
    }

    #[test]
    fn a_kernel_of_its_own_is_not_the_engines() {
        for kind in [Kind::Gvisor, Kind::Kata] {
            assert!(checked(kind, ENGINE, "4.4.0", None));
            assert!(checked(kind, ENGINE, "4.4.0", Some("other")));
            assert!(!checked(kind, ENGINE, ENGINE, None));
            assert!(!checked(kind, ENGINE, "4.4.0", Some("own")));
            assert!(!checked(kind, "", "4.4.0", None));
            assert!(!checked(kind, ENGINE, "", None));
        }
    }

    #[test]
    fn a_runtime_without_one_shows_the_engines() {
        assert!(checked(Kind::Plain, ENGINE, ENGINE, None));
        assert!(checked(Kind::Plain, ENGINE, "other", Some("own")));
        assert!(!checked(Kind::Plain, ENGINE, "4.4.0", None));
        assert!(checked(Kind::Plain, "", "4.4.0", None));
    }

    #[test]
    fn the_engine_must_say_what_was_requested() {
        assert!(check_read_back("runsc", false, Some("runsc")).is_ok());
        assert!(check_read_back("crun", true, Some("oci")).is_ok());
        for told in [None, Some("oci"), Some("runc"), Some("")] {
            assert!(check_read_back("runsc", false, told).is_err(), "{told:?}");
        }
        assert!(check_read_back("crun", true, Some("runc")).is_err());
    }
}
