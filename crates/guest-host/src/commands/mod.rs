//! Where the commands of a policy are in a root file system: which files they are, under which
//! names, and what those need to start. The same for every backend with such a root.

mod disk;
mod memory;
mod multicall;
mod root;
mod scan;
mod startup;
#[cfg(test)]
mod tests;

pub use root::Root;
pub use scan::{Allowed, Denied, Scan, scan};
