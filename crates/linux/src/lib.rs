//! Safe wrappers over the parts of the kernel interface that Brig needs and `rustix` lacks. The
//! only crate with unsafe code.

pub mod clone;
pub mod landlock;
pub mod mount;
pub mod notify;
#[cfg(feature = "async")]
pub mod pidfd;
pub mod process;
pub mod seccomp;
