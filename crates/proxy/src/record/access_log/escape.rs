//! Escapes text from outside for a line of the log.

use std::io::{self, Write};

/// Writes text into a JSON string. Every line is valid JSON (RFC 8259, 7 and 8.1), and appears in a terminal or a viewer
/// as one line in the order of its bytes. Controls, line separators and controls of the writing direction are written as
/// `\u202e`. A byte that is not UTF-8 becomes the four characters `\xE9`.
pub(super) fn json(out: &mut Vec<u8>, value: &[u8]) -> io::Result<()> {
    for chunk in value.utf8_chunks() {
        json_text(out, chunk.valid())?;
        for byte in chunk.invalid() {
            write!(out, "\\\\x{byte:02X}")?;
        }
    }
    Ok(())
}

fn json_text(out: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let bytes = text.as_bytes();
    let (mut copied, mut at) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        if !MAY_NEED_ESCAPE[usize::from(byte)] {
            at += 1;
            continue;
        }
        // Every byte of the table begins a character.
        let Some(char) = text.get(at..).and_then(|rest| rest.chars().next()) else { break };
        let end = at + char.len_utf8();
        if needs_escape(char) {
            out.extend_from_slice(&bytes[copied..at]);
            match char {
                '"' | '\\' => out.extend_from_slice(&[b'\\', byte]),
                _ => write!(out, "\\u{:04x}", u32::from(char))?,
            }
            copied = end;
        }
        at = end;
    }
    out.extend_from_slice(&bytes[copied..]);
    Ok(())
}

/// Whether this byte begins a character that may need an escape. One table lookup for each byte makes ordinary text as
/// cheap as a copy.
const MAY_NEED_ESCAPE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        // The last four begin U+0080 to U+00BF, U+0600 to U+063F, U+2000 to U+2FFF, and U+F000 to U+FFFF.
        table[byte] = matches!(byte, 0..=31 | 34 | 92 | 127 | 0xC2 | 0xD8 | 0xE2 | 0xEF);
        byte += 1;
    }
    table
};

/// Controls (C0, DEL, C1), and characters that end lines or change the direction of writing (Unicode, UAX #9 and UAX
/// #14).
fn needs_escape(char: char) -> bool {
    matches!(
        char,
        '\0'..='\u{1f}'
            | '"'
            | '\\'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

/// Escapes like nginx' `log_format` with `escape=default`.
pub(super) fn nginx(out: &mut Vec<u8>, value: &[u8]) -> io::Result<()> {
    for &byte in value {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => write!(out, "\\x{byte:02X}")?,
            _ => out.push(byte),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        json(&mut out, text.as_bytes()).expect("a Vec takes all");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn control_characters_line_separators_and_text_direction_marks_are_escaped() {
        let controls = ('\0'..='\u{1f}').chain('\u{7f}'..='\u{9f}');
        let separators = ['\u{2028}', '\u{2029}'];
        let directions = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{feff}'];
        let directions = directions.into_iter().chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        for char in controls.chain(separators).chain(directions) {
            let expected = format!("é\\u{:04x}ü", u32::from(char));
            assert_eq!(escaped(&format!("é{char}ü")), expected, "U+{:04X}", u32::from(char));
        }
    }

    #[test]
    fn json_parser_restores_every_escaped_character() {
        let all: String = ('\0'..=char::MAX).collect();
        let line = format!("\"{}\"", escaped(&all));
        assert!(serde_json::from_str::<String>(&line).is_ok_and(|read| read == all));
        let plain: String = ('\0'..=char::MAX).filter(|char| !needs_escape(*char)).collect();
        assert_eq!(escaped(&plain), plain);
    }
}
