use std::io::Write;
use std::path::Path;

use brig_audit::export::ExportError;
use brig_audit::log::Cursor;
use brig_audit::view::View;
use jiff::Timestamp;

use crate::receipt::from_receipt;
use crate::timestamp::isoformat_of;
use crate::{Chain, Value, proof_value};

/// Writes the receipts that `wanted` accepts as one JSON object: what AGT's `AuditLog.export`
/// writes, and the roots and proofs of its chain.
pub fn export(
    path: &Path,
    wanted: &dyn Fn(&View) -> bool,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut chain = Chain::default();
    let (mut entries, mut ids, mut roots) = (Vec::new(), Vec::new(), Vec::new());
    Cursor::new(path).read(|line| {
        let receipt = from_receipt(line).filter(|_| View::of(line).is_some_and(|v| wanted(&v)));
        if let Some(mut entry) = receipt {
            chain.add(&mut entry);
            entries.push(entry.to_value());
            ids.push(entry.entry_id);
            roots.extend(chain.root().map(|root| Value::str(&root)));
        }
        true
    })?;
    let root = chain.root().map_or(Value::Null, |root| Value::str(&root));
    let proofs = ids
        .iter()
        .map(|id| proof_value(&chain.proof(id).unwrap_or_default()));
    let all = Value::dict([
        ("exported_at", Value::str(&isoformat_of(Timestamp::now()))),
        ("merkle_root", root.clone()),
        ("chain_root", root),
        ("entry_count", Value::int(entries.len() as u64)),
        ("proofs", Value::List(proofs.collect())),
        ("roots_after_each_append", Value::List(roots)),
        ("entries", Value::List(entries)),
    ]);
    out.write_all(all.dump().as_bytes())?;
    out.write_all(b"\n")?;
    Ok(())
}
