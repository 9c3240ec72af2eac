//! Verbs, paths and names of fields: one table for each API version of the service. A version is added by an
//! entry in [`VERSIONS`].

use reqwest::Method;

/// What differs between versions.
#[derive(Debug)]
pub(crate) struct Api {
    pub version: &'static str,
    /// Of tokens, unless another one is configured.
    pub scope: &'static str,
    pub create: Method,
    pub write_file: Method,
    pub decisions: &'static str,
    /// The field of the answer with the decisions.
    pub decided: &'static str,
    /// At most so many decisions of each kind are remembered.
    pub remembered: usize,
}

pub(crate) const DEFAULT: &str = "2026-02-01-preview";

static VERSIONS: &[Api] = &[Api {
    version: DEFAULT,
    scope: "https://dynamicsessions.io/.default",
    create: Method::PUT,
    write_file: Method::PUT,
    decisions: "egress-decisions",
    decided: "networkEgress",
    remembered: 50,
}];

pub(crate) fn of(version: &str) -> Option<&'static Api> {
    VERSIONS.iter().find(|api| api.version == version)
}

/// The same in all versions, below a sandbox.
pub(crate) mod action {
    pub(crate) const EXECUTE: &str = "executeShellCommand";
    pub(crate) const EGRESS_POLICY: &str = "egresspolicy";
    pub(crate) const FILES: &str = "files";
    pub(crate) const LIFECYCLE: &str = "lifecycle";
    pub(crate) const RESUME: &str = "resume";
    pub(crate) const SNAPSHOT: &str = "snapshot";
}
