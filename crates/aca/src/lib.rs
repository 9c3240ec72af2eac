//! Sandboxes of Azure Container Apps as a backend of Brig.
//!
//! Each sandbox is a virtual machine of the service. Its egress policy is part of the request that creates
//! it, and is read back before anything runs. Nothing here was tried against Azure: what is known of the
//! service is in `docs/guides/azure.md`, and the tests compare requests with a recording.
//!
//! | module | contents |
//! |---|---|
//! | `settings`, `account` | what can be configured, and what follows from it |
//! | `api` | verbs, paths and names of fields, for each API version |
//! | `credentials` | tokens, and which hosts get them |
//! | `client`, `failure` | requests: retries, timeouts, errors of the service |
//! | `group` | the sandbox group: whether it exists, has an identity, may be used |
//! | `policy` | network rules as an egress policy, and the comparison with what is in force |
//! | `size` | limits as a size of the service |
//! | `create`, `restore` | new sandboxes, and those that were not created with their policy: checked, or deleted |
//! | `lists` | lists of the service, page by page |
//! | `remote` | one sandbox: its policy, commands and files, resume, delete |
//! | `handle` | by what another process joins a sandbox |
//! | `helper` | the shell script that runs programs and copies files in the sandbox |
//! | `instance`, `run`, `console`, `end`, `files`, `decisions` | what a session does with a sandbox |
//! | `backend` | all of it behind the trait of the lifecycle |

#![warn(missing_docs)]

mod account;
mod api;
mod backend;
mod client;
mod console;
mod controls;
mod create;
mod credentials;
mod decisions;
mod end;
mod failure;
mod files;
mod group;
mod handle;
mod helper;
mod instance;
mod lists;
mod policy;
mod remote;
mod restore;
mod run;
mod settings;
mod size;

pub use backend::AcaBackend;
pub use credentials::{Token, TokenSource};
pub use settings::{KIND, Options, Timing};
