//! The line that begins a chunk: its size and its extensions.

use super::ChunkError;
use crate::token::{hex, is_field_value, is_tchar};

/// The maximum number of bytes of a size line, with its extensions and its CRLF.
const MAX_LINE: u32 = 4 * 1024;

/// The maximum number of digits of a size.
const MAX_DIGITS: u8 = 16;

/// The state of reading a size line:
///
/// ```text
/// chunk-size     = 1*HEXDIG
/// chunk-ext      = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
/// chunk-ext-name = token
/// chunk-ext-val  = token / quoted-string
/// ```
#[derive(Clone, Debug, Default)]
pub(super) struct SizeLine {
    size: u64,
    digits: u8,
    length: u32,
    part: Part,
}

/// The next part of the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Size,
    /// Whitespace, which only `;` may follow.
    BeforeSemicolon,
    /// Whitespace, then a name.
    BeforeName,
    Name,
    /// Whitespace after a name, which `=` or `;` may follow.
    AfterName,
    /// Whitespace, then a value.
    BeforeValue,
    Value,
    Quoted,
    /// The byte after a backslash.
    QuotedPair,
    /// After a quoted value.
    AfterQuoted,
    /// After CR.
    Lf,
}

impl SizeLine {
    /// The number of bytes of the line so far.
    pub(super) fn length(&self) -> u32 {
        self.length
    }

    /// Reads further input. Returns the number of consumed bytes, and the size at the end of the line.
    #[inline]
    pub(super) fn advance(&mut self, input: &[u8]) -> Result<(usize, Option<u64>), ChunkError> {
        for (at, &byte) in input.iter().enumerate() {
            self.length += 1;
            if self.length > MAX_LINE {
                return Err(ChunkError::ExtensionsTooLarge);
            }
            if self.part == Part::Size
                && let Some(digit) = hex(byte)
            {
                self.take_digit(digit)?;
            } else if self.part == Part::Lf {
                if byte != b'\n' {
                    return Err(ChunkError::BareLineEnd);
                }
                return Ok((at + 1, Some(self.size)));
            } else {
                self.part = self.after(byte)?;
            }
        }
        Ok((input.len(), None))
    }

    #[inline]
    fn take_digit(&mut self, digit: u8) -> Result<(), ChunkError> {
        self.digits += 1;
        if self.digits > MAX_DIGITS {
            return Err(ChunkError::SizeTooLarge);
        }
        self.size = self.size << 4 | u64::from(digit);
        // A recipient with signed sizes would read a negative size.
        if self.size > i64::MAX as u64 { Err(ChunkError::SizeTooLarge) } else { Ok(()) }
    }

    /// The part after `byte`, which is not a digit of the size.
    fn after(&self, byte: u8) -> Result<Part, ChunkError> {
        if matches!(byte, b'\r' | b'\n') {
            return self.at_line_end(byte);
        }
        let space = matches!(byte, b' ' | b'\t');
        match self.part {
            Part::Size if self.digits > 0 && byte == b';' => Ok(Part::BeforeName),
            Part::Size if self.digits > 0 && space => Ok(Part::BeforeSemicolon),
            Part::Size => Err(ChunkError::InvalidSize),
            Part::BeforeSemicolon if space => Ok(Part::BeforeSemicolon),
            Part::BeforeSemicolon if byte == b';' => Ok(Part::BeforeName),
            Part::BeforeSemicolon => Err(ChunkError::InvalidSize),
            Part::BeforeName if space => Ok(Part::BeforeName),
            Part::BeforeName | Part::Name if is_tchar(byte) => Ok(Part::Name),
            Part::Name | Part::AfterName if byte == b'=' => Ok(Part::BeforeValue),
            Part::Name | Part::AfterName if space => Ok(Part::AfterName),
            Part::BeforeValue if space => Ok(Part::BeforeValue),
            Part::BeforeValue if byte == b'"' => Ok(Part::Quoted),
            Part::BeforeValue | Part::Value if is_tchar(byte) => Ok(Part::Value),
            Part::Value | Part::AfterQuoted if space => Ok(Part::BeforeSemicolon),
            Part::Name | Part::AfterName | Part::Value | Part::AfterQuoted if byte == b';' => {
                Ok(Part::BeforeName)
            }
            Part::Quoted if byte == b'"' => Ok(Part::AfterQuoted),
            Part::Quoted if byte == b'\\' => Ok(Part::QuotedPair),
            Part::Quoted | Part::QuotedPair if is_field_value(byte) => Ok(Part::Quoted),
            _ => Err(ChunkError::InvalidExtension),
        }
    }

    fn at_line_end(&self, byte: u8) -> Result<Part, ChunkError> {
        match self.part {
            Part::Size if self.digits == 0 => Err(ChunkError::InvalidSize),
            Part::Size | Part::Name | Part::Value | Part::AfterQuoted if byte == b'\r' => Ok(Part::Lf),
            Part::BeforeSemicolon if byte == b'\r' => Err(ChunkError::InvalidSize),
            // A line end in a quoted string also smuggles a chunk past recipients that skip to the next LF.
            _ if byte == b'\n' || matches!(self.part, Part::Quoted | Part::QuotedPair) => {
                Err(ChunkError::BareLineEnd)
            }
            _ => Err(ChunkError::InvalidExtension),
        }
    }
}
