//! How deeply code can be nested, from its tokens alone: before anything walks into it.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::Mode;
use ruff_python_parser::lexer::lex;

/// The most nested tokens. Python's own parser gives up much earlier.
pub(super) const MOST: u32 = 2_000;
/// As in Python.
const MOST_INDENTS: u32 = 100;

/// Every token may open a level, until a comma or the end of the line closes them again.
pub(super) fn is_too_deep(code: &str) -> bool {
    let mut lexer = lex(code, Mode::Module);
    let mut open: Vec<u32> = vec![0];
    let (mut depth, mut indents): (u32, u32) = (0, 0);
    let mut last = TokenKind::Newline;
    loop {
        let kind = lexer.next_token();
        match kind {
            TokenKind::EndOfFile => return false,
            TokenKind::Comment | TokenKind::NonLogicalNewline => continue,
            TokenKind::Indent => indents += 1,
            TokenKind::Dedent => indents = indents.saturating_sub(1),
            TokenKind::Newline => {
                open.clear();
                open.push(0);
                depth = 0;
            }
            TokenKind::Comma | TokenKind::Semi => {
                if let Some(level) = open.last_mut() {
                    depth -= *level;
                    *level = 0;
                }
            }
            TokenKind::Rpar
            | TokenKind::Rsqb
            | TokenKind::Rbrace
            | TokenKind::FStringEnd
            | TokenKind::TStringEnd => {
                if open.len() > 1 {
                    depth -= open.pop().unwrap_or(0);
                }
            }
            // Adjacent string literals are one literal.
            TokenKind::String if last == TokenKind::String => {}
            kind => {
                depth += 1;
                if let Some(level) = open.last_mut() {
                    *level += 1;
                }
                let opens = matches!(
                    kind,
                    TokenKind::Lpar
                        | TokenKind::Lsqb
                        | TokenKind::Lbrace
                        | TokenKind::FStringStart
                        | TokenKind::TStringStart
                );
                if opens {
                    open.push(0);
                }
            }
        }
        last = kind;
        if depth > MOST || indents > MOST_INDENTS {
            return true;
        }
    }
}
