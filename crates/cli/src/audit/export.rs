use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use brig_audit::agt::{Value, chain_of};
use brig_audit::export::{ExportError, Format, export};

use super::{keys, show};
use crate::args::{AgtChainArgs, ExportArgs, ExportFormat};
use crate::failure::Failure;
use crate::{exit, write_out};

pub fn run(path: &Path, args: &ExportArgs) -> Result<u8, Failure> {
    let format = match args.format {
        ExportFormat::Agt => Format::Agt,
        ExportFormat::Cloudevents => Format::CloudEvents,
        ExportFormat::Ocsf => Format::Ocsf,
        ExportFormat::Csv => Format::Csv,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let wanted = |view: &_| show::matches(&args.filter, view);
    let written = export(path, format, &wanted, &mut out);
    match written.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => Ok(0),
        Err(ExportError::Log(error)) => Err(error.into()),
        Err(ExportError::Write(_)) => Ok(exit::of_broken_pipe()),
    }
}

pub fn agt_chain(args: &AgtChainArgs) -> Result<u8, Failure> {
    let text = if args.entries == Path::new("-") {
        let mut text = String::new();
        let read = io::stdin().read_to_string(&mut text);
        read.map_err(|error| Failure::file("-", &error))?;
        text
    } else {
        keys::text(&args.entries)?
    };
    let wrong = |problem: String| Failure::new("agt.entries", problem);
    let entries = match Value::parse(&text) {
        Ok(Value::List(entries)) => entries,
        Ok(_) => return Err(wrong("expected a JSON list of entries".into())),
        Err(error) => return Err(wrong(format!("the entries are not JSON: {error}"))),
    };
    let chain =
        chain_of(&entries).map_err(|(place, error)| wrong(format!("entry {place}: {error}")))?;
    Ok(write_out(format!("{}\n", chain.dump()).as_bytes()))
}
