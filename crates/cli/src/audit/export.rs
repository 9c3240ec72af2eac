use std::io::Write;
use std::path::Path;

use brig_agt_export::{Value, chain_of};
use brig_audit::export::{ExportError, Format, export};
use brig_reason::ReasonCode;

use super::{keys, show};
use crate::args::{AgtChainArgs, ExportArgs, ExportFormat};
use crate::exit;
use crate::failure::Failure;
use crate::stdout::{OutputFormat, Stdout};

pub(crate) fn run(path: &Path, args: &ExportArgs) -> Result<u8, Failure> {
    let mut out = Stdout::new(match args.format {
        ExportFormat::Csv => OutputFormat::Text,
        ExportFormat::Agt | ExportFormat::Cloudevents | ExportFormat::Ocsf => OutputFormat::Json,
    });
    let wanted = |view: &_| show::matches(&args.filter, view);
    let written = match args.format {
        ExportFormat::Agt => brig_agt_export::export(path, &wanted, &mut out),
        ExportFormat::Cloudevents => export(path, Format::CloudEvents, &wanted, &mut out),
        ExportFormat::Ocsf => export(path, Format::Ocsf, &wanted, &mut out),
        ExportFormat::Csv => export(path, Format::Csv, &wanted, &mut out),
    };
    match written.and_then(|()| Ok(out.finish()?)) {
        Ok(()) => Ok(0),
        Err(ExportError::Log(error)) => Err(error.into()),
        Err(ExportError::Write(error)) => Ok(exit::of_unwritten(&error)),
    }
}

pub(crate) fn agt_chain(args: &AgtChainArgs) -> Result<u8, Failure> {
    let text = keys::text(&args.entries)?;
    let wrong = |problem: String| Failure::new(ReasonCode::AgtEntries, problem);
    let entries = match Value::parse(&text) {
        Ok(Value::List(entries)) => entries,
        Ok(_) => return Err(wrong("expected a JSON list of entries".into())),
        Err(error) => return Err(wrong(format!("the entries are not JSON: {error}"))),
    };
    let chain =
        chain_of(&entries).map_err(|(place, error)| wrong(format!("entry {place}: {error}")))?;
    let mut out = Stdout::new(OutputFormat::Json);
    let written = writeln!(out, "{}", chain.dump()).and_then(|()| out.finish());
    Ok(match written {
        Ok(()) => 0,
        Err(error) => exit::of_unwritten(&error),
    })
}
