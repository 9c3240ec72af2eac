//! The Docker backend: the guest is the first process of a hardened container, and is spoken to
//! over the container's standard streams.

#![warn(missing_docs)]

mod address;
mod apparmor;
mod archive;
mod backend;
mod choice;
mod commands;
mod credentials;
mod derived;
mod doctor;
mod engine;
mod engine_files;
mod file_cache;
mod guard;
mod hardening;
mod image;
mod image_defaults;
mod image_programs;
mod limits;
mod lookup;
mod mounts;
mod network;
mod options;
mod own_directory;
mod owner;
mod pool;
mod product;
mod programs;
mod proof;
mod removals;
mod runtime;
mod ssh;
mod staging;
mod stream;
mod sweep;
mod user;

pub use address::{Address, Environment};
pub use apparmor::{Kernel, Profile};
pub use backend::{DockerBackend, Options, Progress};
pub use image::USUAL as USUAL_IMAGES;
pub use options::KIND;
pub use owner::LABEL as OWNER_LABEL;
pub use ssh::SshTarget;
