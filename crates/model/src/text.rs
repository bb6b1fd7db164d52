//! External text, escaped for logs, tables and Events.
//!
//! Names, annotation keys and file names come from users. A line break in a name would forge a line of a log. A bidirectional
//! override would show a line in another order than its characters (Unicode Technical Report 36, "Bidirectional Text
//! Spoofing").

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Whether a character is invisible: it ends a line, controls a terminal, or changes the order of its neighbours.
#[must_use]
pub const fn is_hidden(character: char) -> bool {
    matches!(
        character,
        // C0, DEL and C1, U+0085 among them.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Marks, embeddings, overrides and isolates (Unicode Standard Annex 9, 2).
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // The separators of lines and paragraphs.
        | '\u{2028}' | '\u{2029}'
    )
}

/// The text with every [hidden](is_hidden) character escaped: as `\n`, `\r` or `\t`, all others as `\u202e`. JSON has the
/// same escapes (RFC 8259, 7), so a line of JSON stays valid.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    // Writing to a String does not fail.
    let _ = OneLine(&mut line).write_str(text);
    Cow::Owned(line)
}

/// Escapes written text as [`one_line`] does.
#[derive(Debug)]
pub struct OneLine<'w, W>(pub &'w mut W);

impl<W: Write> Write for OneLine<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, hidden)) = rest.char_indices().find(|(_, character)| is_hidden(*character)) {
            self.0.write_str(&rest[..at])?;
            match hidden {
                '\n' => self.0.write_str("\\n")?,
                '\r' => self.0.write_str("\\r")?,
                '\t' => self.0.write_str("\\t")?,
                _ => write!(self.0, "\\u{:04x}", u32::from(hidden))?,
            }
            rest = &rest[at + hidden.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn only_control_characters_line_separators_and_text_direction_marks_are_escaped() {
        for (text, line) in [
            ("", ""),
            ("caf\u{e9} \u{1f600} \u{5d0}\u{200d}", "caf\u{e9} \u{1f600} \u{5d0}\u{200d}"),
            ("a\nERROR b\r\n", "a\\nERROR b\\r\\n"),
            ("\ta\0\u{1b}[2J\u{7f}", "\\ta\\u0000\\u001b[2J\\u007f"),
            ("\u{85}\u{9b}2J", "\\u0085\\u009b2J"),
            ("\u{2028}\u{2029}", "\\u2028\\u2029"),
            (
                "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}",
                "\\u061c\\u200e\\u200f\\u202a\\u202e\\u2066\\u2069",
            ),
        ] {
            assert_eq!(one_line(text), line, "{text:?}");
        }
    }
}
