//! Equality, order and membership, with the errors that Python raises.

use std::cmp::Ordering;

use super::Value;
use super::number::Number;

/// A comparison by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Order {
    fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Order::Less => ordering.is_lt(),
            Order::LessOrEqual => ordering.is_le(),
            Order::Greater => ordering.is_gt(),
            Order::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// Two values that this operator can't compare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Values without an order, such as text and a number.
    #[error("{left} and {right} have no order")]
    NoOrder {
        /// The kind of the value on the left.
        left: &'static str,
        /// The kind of the value on the right.
        right: &'static str,
    },
    /// Something was to be found in a value of this kind, which holds nothing.
    #[error("{0} is not a container")]
    NotAContainer(&'static str),
    /// A value of this kind was to be found in text.
    #[error("only text can be searched for in text, not {0}")]
    NotText(&'static str),
    /// A value of this kind was to be found among the keys of a map.
    #[error("{0} can't be a key of a map")]
    NotAKey(&'static str),
}

impl Value {
    /// `self == other`.
    pub fn equals(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is(b))
            }
            (Value::Map(a), Value::Map(b)) => {
                a.len() == b.len()
                    && a.iter_sorted().zip(b.iter_sorted()).all(
                        |((key, value), (other_key, other))| key == other_key && value.is(other),
                    )
            }
            _ => match (Number::of(self), Number::of(other)) {
                (Some(a), Some(b)) => a.compare(b) == Some(Ordering::Equal),
                _ => false,
            },
        }
    }

    /// How the items of containers are compared: what is not even equal to itself (NaN) is still
    /// itself.
    fn is(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Float(a), Value::Float(b)) if a.is_nan() && b.is_nan() => true,
            _ => self.equals(other),
        }
    }

    /// `self < other` and its like.
    pub fn in_order(&self, order: Order, other: &Value) -> Result<bool, Mismatch> {
        if let (Some(a), Some(b)) = (Number::of(self), Number::of(other)) {
            return Ok(a.compare(b).is_some_and(|ordering| order.accepts(ordering)));
        }
        match (self, other) {
            // The order of UTF-8 bytes is the order of code points.
            (Value::Text(a), Value::Text(b)) => Ok(order.accepts(a.cmp(b))),
            (Value::List(a), Value::List(b)) => match a.iter().zip(b).find(|(a, b)| !a.is(b)) {
                Some((a, b)) => a.in_order(order, b),
                None => Ok(order.accepts(a.len().cmp(&b.len()))),
            },
            _ => Err(Mismatch::NoOrder {
                left: self.kind(),
                right: other.kind(),
            }),
        }
    }

    /// `needle in self`.
    pub fn contains(&self, needle: &Value) -> Result<bool, Mismatch> {
        match self {
            Value::Text(text) => match needle {
                Value::Text(part) => Ok(text.contains(part.as_str())),
                _ => Err(Mismatch::NotText(needle.kind())),
            },
            Value::List(list) => Ok(list.iter().any(|item| item.is(needle))),
            Value::Map(map) => match needle {
                Value::Text(key) => Ok(map.contains_key(key)),
                Value::List(_) | Value::Map(_) => Err(Mismatch::NotAKey(needle.kind())),
                _ => Ok(false),
            },
            _ => Err(Mismatch::NotAContainer(self.kind())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Map;

    fn text(text: &str) -> Value {
        text.into()
    }

    #[test]
    fn true_is_one_and_text_is_never_a_number() {
        assert!(Value::Bool(true).equals(&Value::Float(1.0)));
        assert!(!text("1").equals(&Value::Int(1)));
        assert!(!Value::Null.equals(&Value::Bool(false)));
        assert!(!Value::Float(f64::NAN).equals(&Value::Float(f64::NAN)));
        let nan = || Value::List(vec![Value::Float(f64::NAN)]);
        assert!(nan().equals(&nan()));
        let list = Value::List(vec![Value::Int(1), text("a")]);
        assert!(list.equals(&Value::List(vec![Value::Bool(true), text("a")])));
    }

    #[test]
    fn maps_are_equal_in_any_order() {
        let map = |keys: [&str; 2]| {
            let entries = keys.into_iter().map(|key| (key, text(key)));
            Value::Map(entries.collect::<Map>())
        };
        assert!(map(["a", "b"]).equals(&map(["b", "a"])));
        assert!(!map(["a", "b"]).equals(&map(["b", "c"])));
    }

    #[test]
    fn lists_are_ordered_by_their_first_difference() {
        let list = |items: &[i64]| Value::List(items.iter().map(|i| Value::Int(*i)).collect());
        assert_eq!(
            list(&[1, 2]).in_order(Order::Less, &list(&[1, 3])),
            Ok(true)
        );
        assert_eq!(list(&[1]).in_order(Order::Less, &list(&[1, 3])), Ok(true));
        let mixed = Value::List(vec![Value::Int(1), text("x")]);
        assert!(list(&[1, 2]).in_order(Order::Less, &mixed).is_err());
        assert_eq!(list(&[0, 2]).in_order(Order::Less, &mixed), Ok(true));
    }

    #[test]
    fn what_has_no_order_is_an_error() {
        assert!(text("a").in_order(Order::Greater, &Value::Int(1)).is_err());
        assert!(
            Value::Int(1)
                .in_order(Order::Greater, &Value::Null)
                .is_err()
        );
        let map = Value::Map(Map::new());
        assert!(map.in_order(Order::GreaterOrEqual, &map).is_err());
    }

    #[test]
    fn membership_depends_on_the_container() {
        assert_eq!(text("abc").contains(&text("")), Ok(true));
        assert!(text("abc").contains(&Value::Int(1)).is_err());
        let list = Value::List(vec![Value::Float(2.0)]);
        assert_eq!(list.contains(&Value::Int(2)), Ok(true));
        assert_eq!(list.contains(&list), Ok(false));
        let map = Value::Map([("k", 1_i64)].into_iter().collect());
        assert_eq!(map.contains(&text("k")), Ok(true));
        assert_eq!(map.contains(&Value::Int(1)), Ok(false));
        assert!(map.contains(&list).is_err());
        assert!(Value::Int(3).contains(&Value::Int(3)).is_err());
    }
}
