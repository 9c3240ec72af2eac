//! Safe wrappers over the parts of the kernel interface that Brig needs and `rustix` lacks. The
//! only crate with unsafe code.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the kernel defines the width of every argument, and takes descriptors as both"
)]

pub mod access;
pub mod clone;
pub mod directory;
pub mod gate;
pub mod landlock;
pub mod locks;
pub mod mediate;
pub mod mount;
pub mod mountinfo;
pub mod net;
pub mod notify;
#[cfg(feature = "async")]
pub mod pidfd;
pub mod process;
pub mod process_stat;
pub mod seccomp;
pub mod socket;
pub mod supervise;
pub mod user_namespace;
