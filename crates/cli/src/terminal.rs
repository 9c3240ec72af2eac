//! The caller's own terminal.

use std::io::{IsTerminal, Write};

use brig_sandbox::request::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

const USUAL: TerminalSize = TerminalSize {
    rows: 24,
    columns: 80,
};

/// The size of the terminal, or a common default.
pub(crate) fn size() -> TerminalSize {
    [
        rustix::stdio::stdout(),
        rustix::stdio::stdin(),
        rustix::stdio::stderr(),
    ]
    .into_iter()
    .filter_map(|stream| tcgetwinsize(stream).ok())
    .map(|size| TerminalSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
    .find(|size| size.rows > 0 && size.columns > 0)
    .unwrap_or(USUAL)
}

/// While it exists, every key goes to the program unchanged, Ctrl-C too. Dropping it restores the
/// terminal, also while unwinding.
#[derive(Debug)]
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// `None` if standard input is not a terminal.
    pub(crate) fn enter() -> std::io::Result<Option<Self>> {
        let stdin = rustix::stdio::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        let guard = Self { before };
        tcsetattr(stdin, OptionalActions::Now, &raw)?;
        Ok(Some(guard))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Resets the terminal after a program was killed: leaves the alternate screen, shows the cursor, turns
/// off mouse reports and bracketed paste, resets colours.
pub(crate) fn reset() {
    const TIDY: &[u8] =
        b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m\r\n";
    let mut stdout = std::io::stdout();
    if stdout.is_terminal() {
        let _ = stdout.write_all(TIDY).and_then(|()| stdout.flush());
    }
}
