//! The log in the formats of other systems.

mod cloudevents;
mod csv;
mod ocsf;

use std::io::{self, Write};
use std::path::Path;

use crate::LogError;
use crate::log::{Cursor, Snapshot};
use crate::view::View;

/// The format of an export.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// One CloudEvents 1.0 event per line.
    CloudEvents,
    /// One OCSF event per line.
    Ocsf,
    /// A header, then one line per record. No field is a formula of a spreadsheet.
    Csv,
}

/// Why an export is incomplete. What was written before remains.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The log cannot be read, or a record is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The output cannot be written.
    #[error("cannot write the export: {0}")]
    Write(#[from] io::Error),
}

/// Writes the records that `wanted` accepts.
pub fn export(
    path: impl AsRef<Path>,
    format: Format,
    wanted: &dyn Fn(&View) -> bool,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let path = path.as_ref();
    match format {
        Format::CloudEvents => {
            let origin = origin(path)?;
            each(path, wanted, |view| cloudevents::write(&view, &origin, out))
        }
        Format::Ocsf => {
            let origin = origin(path)?;
            each(path, wanted, |view| ocsf::write(&view, &origin, out))
        }
        Format::Csv => {
            csv::header(out)?;
            each(path, wanted, |view| csv::write(&view, out))
        }
    }
}

fn origin(path: &Path) -> Result<String, LogError> {
    Ok(Snapshot::open(path)?.parsed_head()?.origin)
}

fn each(
    path: &Path,
    wanted: &dyn Fn(&View) -> bool,
    mut write: impl FnMut(View) -> io::Result<()>,
) -> Result<(), ExportError> {
    let mut done = Ok(());
    Cursor::new(path).read(|line| {
        if let Some(view) = View::of(line).filter(|view| wanted(view)) {
            done = write(view);
        }
        done.is_ok()
    })?;
    Ok(done?)
}

fn json_line(value: &serde_json::Value, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
