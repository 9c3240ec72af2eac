//! The stable reason codes of errors, decisions, records and receipts.
//!
//! Programs branch on codes and logs contain them, so a code is never renamed or reused. The tables
//! of `docs/reference/reason-codes.md` are generated from [`ReasonCode`].

mod codes;
mod page;

use std::fmt;

use serde::{Serialize, Serializer};

pub use codes::{Group, ReasonCode};
pub use page::table;

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Serialize for ReasonCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl PartialEq<str> for ReasonCode {
    fn eq(&self, other: &str) -> bool {
        self.code() == other
    }
}

impl PartialEq<&str> for ReasonCode {
    fn eq(&self, other: &&str) -> bool {
        self.code() == *other
    }
}

impl From<ReasonCode> for String {
    fn from(code: ReasonCode) -> Self {
        code.code().to_owned()
    }
}

impl PartialEq<ReasonCode> for str {
    fn eq(&self, other: &ReasonCode) -> bool {
        other == self
    }
}

impl PartialEq<ReasonCode> for String {
    fn eq(&self, other: &ReasonCode) -> bool {
        *other == **self
    }
}
