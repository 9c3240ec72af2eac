use std::io::{self, Write};

use crate::escape;
use crate::view::View;

pub(super) fn header(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"seq,at,agent,session,execution,event,decision,code,rule,detail,hash\r\n")
}

pub(super) fn write(view: &View, out: &mut dyn Write) -> io::Result<()> {
    let (seq, at) = (view.seq.to_string(), view.at.to_string());
    let cells: [&str; 11] = [
        &seq,
        &at,
        &view.agent,
        &view.session,
        view.execution.as_deref().unwrap_or_default(),
        &view.event,
        view.decision.map_or("", |verdict| verdict.name()),
        view.code.as_deref().unwrap_or_default(),
        view.rule.as_deref().unwrap_or_default(),
        &view.detail,
        &view.hash,
    ];
    let line: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
    out.write_all(line.join(",").as_bytes())?;
    out.write_all(b"\r\n")
}

/// A cell that is only ever read: a spreadsheet must not take it for a formula.
fn quoted(cell: &str) -> String {
    let mut text = escape::line(cell);
    if text.starts_with(['=', '+', '-', '@']) {
        text.insert(0, '\'');
    }
    if text.contains([',', '"', ';']) {
        text = format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_neither_a_formula_nor_several_cells() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\"\nc"), "\"a,\"\"b\"\"␊c\"");
        assert_eq!(quoted("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(quoted("@x"), "'@x");
        assert_eq!(quoted("\t=x"), "␉=x");
    }
}
