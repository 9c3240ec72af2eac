//! The values that conditions compare. They behave as Python's do, because that is the meaning
//! that existing policies were written against.

mod compare;
mod json;
mod number;
mod serde;
mod text;

pub use compare::{Mismatch, Order};
pub use number::{BigInt, MAX_DIGITS};

/// A value of a fact or of a condition. `==` is Rust's; Python's equality is [`Value::equals`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Python's `None`. A fact that is null counts as missing.
    Null,
    /// As in Python, `true` equals 1 and `false` equals 0.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// An integer outside of the range of [`Value::Int`].
    Big(BigInt),
    /// A number with a fraction. It may be infinite or NaN.
    Float(f64),
    /// Python's `str`, always valid UTF-8.
    Text(String),
    /// Python's `list`.
    List(Vec<Value>),
    /// Python's `dict`, with text as its keys.
    Map(Map),
}

impl Value {
    /// What the value is, in the words of messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Big(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The text. `None` if the value is of another kind.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Float(value)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(list: Vec<T>) -> Self {
        Value::List(list.into_iter().map(Into::into).collect())
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Value::Map(map)
    }
}

/// Keys in the order they were given. Of a key that is given twice, the last value counts.
#[derive(Clone, Debug, Default)]
pub struct Map {
    entries: Vec<(String, Value)>,
    /// Positions in `entries`, in the order of their keys.
    sorted: Vec<u32>,
}

impl Map {
    /// A map without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key. `None` if there is no such key; a null is `Some(Value::Null)`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let found = self.search(key).ok()?;
        self.entry(found).map(|(_, value)| value)
    }

    /// Whether the key is there, even if its value is null.
    pub fn contains_key(&self, key: &str) -> bool {
        self.search(key).is_ok()
    }

    /// Sets the value of a key, and replaces the one that was there.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.search(&key) {
            Ok(found) => {
                let at = self.sorted[found] as usize;
                self.entries[at].1 = value;
            }
            Err(place) => {
                let at = u32::try_from(self.entries.len()).expect("fewer than 2^32 keys");
                self.sorted.insert(place, at);
                self.entries.push((key, value));
            }
        }
    }

    /// Removes a key, and returns its value. The order of the others stays.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.sorted[self.search(key).ok()?] as usize;
        let (_, value) = self.entries.remove(at);
        let entries = std::mem::take(&mut self.entries);
        *self = entries.into_iter().collect();
        Some(value)
    }

    /// In the order in which they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// In the order of the keys.
    pub fn iter_sorted(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.sorted.iter().map(|at| {
            let (key, value) = &self.entries[*at as usize];
            (&**key, value)
        })
    }

    fn search(&self, key: &str) -> Result<usize, usize> {
        self.sorted
            .binary_search_by(|at| (*self.entries[*at as usize].0).cmp(key))
    }

    fn entry(&self, found: usize) -> Option<&(String, Value)> {
        self.entries.get(*self.sorted.get(found)? as usize)
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter_sorted().eq(other.iter_sorted())
    }
}

impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Map::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_keeps_the_order_and_the_last_value() {
        let mut map: Map = [("b", 1), ("a", 2), ("b", 3)]
            .into_iter()
            .map(|(key, value)| (key, Value::Int(value)))
            .collect();
        assert_eq!(
            map.iter().map(|(key, _)| key).collect::<Vec<_>>(),
            ["b", "a"]
        );
        assert_eq!(map.get("b"), Some(&Value::Int(3)));
        let keys: Vec<_> = map.iter_sorted().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(map.remove("b"), Some(Value::Int(3)));
        assert_eq!(map.remove("b"), None);
        assert!(map.contains_key("a") && map.len() == 1);
    }
}
