//! Attacks that every backend must survive.
//!
//! An attack is a small program, a *probe*, that tries one thing in several ways and says for
//! each attempt whether it worked. The same probe is run twice: inside a sandbox, where every
//! attempt must fail, and in a *fence* outside, where it must succeed. Only the second run gives
//! the first one its meaning.
//!
//! The attacks are written against [`brig_sandbox::Backend`]; `tests/` runs them on the native
//! backend, and another backend joins with one `ground` function and the same macros.

#![allow(
    clippy::unwrap_used,
    reason = "this crate is a test suite: a failed assumption has to stop the test"
)]

pub mod fence;
pub mod ground;
pub mod host;
pub mod owner;
pub mod probe;

pub mod commands;
pub mod environment;
pub mod filesystem;
pub mod filetypes;
pub mod guest;
pub mod ipc;
pub mod kernel;
pub mod leftovers;
pub mod limits;
pub mod links;
pub mod memory;
pub mod missing;
pub mod names;
pub mod namespaces;
pub mod output;
pub mod privileges;
pub mod processes;
pub mod readonly;
pub mod rootfs;
pub mod saving;
pub mod stubborn;

pub use ground::Ground;

/// One `#[tokio::test]` for each named attack of a module, on the given ground.
#[macro_export]
macro_rules! attacks {
    ($ground:path, $module:ident: $($name:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                // One that can't be had here says so itself.
                if let Some(ground) = Option::<$crate::Ground>::from($ground()) {
                    $crate::$module::$name(&ground).await;
                }
            }
        )+
    };
}
