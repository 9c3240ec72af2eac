//! Attacks that every backend must survive.
//!
//! An attack is a small program, a *probe*, that tries one thing in several ways and reports for each attempt
//! whether it worked. The same probe is run twice: in a sandbox, where every attempt must fail, and in a
//! *fence* outside, where it must succeed. The second run is the positive control: it shows that the attack
//! works.
//!
//! The attacks are written against [`brig_sandbox::Backend`]; `tests/` runs them on the native
//! backend, and another backend joins with one `target` function and the same macros.

#![allow(
    clippy::unwrap_used,
    reason = "this crate is a test suite: a failed assumption has to stop the test"
)]

pub mod fence;
pub mod host;
pub mod owner;
pub mod probe;
pub mod swapper;
pub mod target;

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
pub mod propagation;
pub mod readonly;
pub mod rootfs;
pub mod saving;
pub mod secrets;
pub mod starts;
pub mod stubborn;

pub use target::AttackTarget;

/// One `#[tokio::test]` for each named attack of a module, against the given target.
#[macro_export]
macro_rules! attacks {
    ($target:path, $module:ident: $($name:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                // A target that does not exist here reports that itself.
                if let Some(target) = Option::<$crate::AttackTarget>::from($target()) {
                    $crate::$module::$name(&target).await;
                }
            }
        )+
    };
}
