//! The host side of the guest protocol, for every backend with a Linux userland. Such a backend
//! starts the guest and enforces its limits; the rest is here: the connection to the guest, its
//! network, and the search for the programs that a policy lists.

pub mod commands;
pub mod link;
pub mod listeners;
pub mod network;
pub mod tools;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic leaves no state here half changed, so a poisoned lock can be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
