//! How files are read: a tree in which every value knows its place, tables that say what may be in
//! it, and what is wrong with it. Policies are read with it, and so are the other files that people
//! write.

pub use crate::document::fields::{Field, Kind};
pub use crate::document::typed::{Object, Reader};
pub use crate::document::{reference_of, schema_of};
pub use crate::problem::{Entry, Fault, Log, nearest, quoted};
pub use crate::tree::{Kind as NodeKind, Node, Pair, parse};
