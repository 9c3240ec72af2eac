//! Verifies an audit log.

use std::path::PathBuf;

use brig_audit::note::PublicKey;
use brig_audit::verify::{Expected, verify};
use pyo3::prelude::*;
use serde_json::json;

use crate::error;

/// Reads the whole log. The answer is JSON; a log that is not what was written raises.
#[pyfunction]
#[pyo3(signature = (path, head, key))]
pub(crate) fn audit_verify(
    py: Python<'_>,
    path: PathBuf,
    head: Option<String>,
    key: Option<&str>,
) -> PyResult<String> {
    let key = key.map(PublicKey::parse).transpose().map_err(|failed| {
        error::make(
            py,
            "audit",
            &failed.to_string(),
            "audit.key",
            None,
            None,
            "{}",
        )
    })?;
    let expected = Expected { head, key };
    let verified = py.detach(|| verify(&path, &expected)).map_err(|fault| {
        let (file, line) = fault.place.clone().unzip();
        let details = json!({ "record": fault.record, "file": file, "line": line });
        let code = fault.code().code();
        error::make(
            py,
            "audit",
            &fault.to_string(),
            code,
            None,
            None,
            &details.to_string(),
        )
    })?;
    let answer = json!({
        "records": verified.records,
        "segments": verified.segments,
        "unsigned": verified.unsigned,
        "key_rotations": verified.rotations,
        "pruned": verified.pruned,
        "head": {
            "origin": verified.head.origin,
            "size": verified.head.size,
            "root": verified.head.root.base64(),
        },
    });
    Ok(answer.to_string())
}
