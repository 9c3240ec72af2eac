//! Receipts as an audit chain of AGT, identical to the byte: AGT's canonical text is that of Python's
//! `json.dumps`, its tree hashes hashes as hexadecimal text, and the fields that its hash does not
//! cover stay unprotected.

mod chain;
mod entry;
mod export;
mod receipt;
mod text;
mod timestamp;
mod value;

pub use chain::{Chain, Side};
pub use entry::{AgtEntry, EntryError, Unprotected};
pub use export::export;
pub use text::Text;
pub use value::{ParseError, Value};

/// The answer to a list of entries, in the shape of AGT's own.
pub fn chain_of(entries: &[Value]) -> Result<Value, (usize, EntryError)> {
    let mut chain = Chain::default();
    let (mut canonical, mut hashes, mut roots) = (Vec::new(), Vec::new(), Vec::new());
    let mut ids = Vec::new();
    for (place, given) in entries.iter().enumerate() {
        let mut entry = AgtEntry::read(given).map_err(|error| (place, error))?;
        chain.add(&mut entry);
        canonical.push(Value::str(&entry.canonical()));
        hashes.push(Value::str(&entry.entry_hash));
        roots.extend(chain.root().map(|root| Value::str(&root)));
        ids.push(entry.entry_id);
    }
    let proofs = ids.iter().filter_map(|id| chain.proof(id));
    Ok(Value::dict([
        ("canonical", Value::List(canonical)),
        ("hashes", Value::List(hashes)),
        ("roots_after_each_append", Value::List(roots)),
        (
            "proofs",
            Value::List(proofs.map(|path| proof_value(&path)).collect()),
        ),
    ]))
}

/// A proof as AGT writes it: pairs of a hash and a side.
fn proof_value(path: &[(String, Side)]) -> Value {
    let step = |(hash, side): &(String, Side)| {
        Value::List(vec![Value::str(hash), Value::str(side.name())])
    };
    Value::List(path.iter().map(step).collect())
}
