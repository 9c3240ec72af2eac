//! The reason codes, in the sources and in the documents.

mod codes;
