//! The Docker backend: the guest is the first process of a hardened container, and is spoken to
//! over the container's standard streams.

mod address;
mod apparmor;
mod archive;
mod backend;
mod commands;
mod derived;
mod doctor;
mod engine;
mod guard;
mod hardening;
mod image;
mod leftovers;
mod limits;
mod mounts;
mod network;
mod outline;
mod owner;
mod pool;
mod programs;
mod runtime;
mod stream;
mod sweep;

pub use address::{Address, Environment};
pub use apparmor::{Kernel, Profile};
pub use backend::{DockerBackend, Options, Progress};
pub use image::USUAL as USUAL_IMAGES;
pub use owner::LABEL as OWNER_LABEL;
