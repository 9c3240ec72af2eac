//! The priority of a rule. As in Python, the integer has no bounds: a truncated priority could reverse
//! the order of two rules.

use std::cmp::Ordering;
use std::fmt;

use brig_python_semantics::{BigInt, Value};
use serde::{Serialize, Serializer};

/// The order of a rule: higher priorities are tried first. 0 if the rule does not set it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// An integer of 64 bits, which every policy of Brig has.
    Int(i64),
    /// Beyond 64 bits. Only read for AGT.
    Big(BigInt),
}

impl Priority {
    pub(super) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Int(value) => Some(Priority::Int(value)),
            Value::Big(value) => Some(Priority::Big(value)),
            _ => None,
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        match self {
            Priority::Int(value) => Value::Int(*value),
            Priority::Big(value) => Value::Big(value.clone()),
        }
    }
}

impl Default for Priority {
    fn default() -> Self {
        Priority::Int(0)
    }
}

impl Ord for Priority {
    fn cmp(&self, other: &Self) -> Ordering {
        use Priority::{Big, Int};
        let beside_any_int = |big: &BigInt| match big.is_negative() {
            true => Ordering::Less,
            false => Ordering::Greater,
        };
        match (self, other) {
            (Int(a), Int(b)) => a.cmp(b),
            (Big(a), Big(b)) => a.cmp(b),
            (Big(a), Int(_)) => beside_any_int(a),
            (Int(_), Big(b)) => beside_any_int(b).reverse(),
        }
    }
}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq<i64> for Priority {
    fn eq(&self, other: &i64) -> bool {
        *self == Priority::Int(*other)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Priority::Int(value) => write!(f, "{value}"),
            Priority::Big(value) => write!(f, "{value}"),
        }
    }
}

impl Serialize for Priority {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}
