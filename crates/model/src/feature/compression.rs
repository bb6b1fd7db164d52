//! Compression of responses: the codings, the media types, and the levels.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::encoding::adapt::Parse;
use crate::encoding::bound::Bound;
use crate::encoding::{Adapt as _, List, OrDefault, Parsed, Within};
use crate::value::Number;

/// A coding of a response's body (RFC 9110, 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(index_only)]
pub enum ContentCoding {
    /// `gzip` (RFC 1952).
    #[serde(rename = "gzip")]
    #[n(0)]
    Gzip,
    /// `br` (RFC 7932).
    #[serde(rename = "br")]
    #[n(1)]
    Brotli,
    /// `zstd` (RFC 8878).
    #[serde(rename = "zstd")]
    #[n(2)]
    Zstd,
}

impl ContentCoding {
    /// Every coding, by [`index`](Self::index).
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Brotli, Self::Zstd];

    /// The coding's number, below the length of [`ALL`](Self::ALL).
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The coding's name in `Content-Encoding`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for ContentCoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The allowed codings, each at most once, in order of preference. An empty list disables compression.
///
/// The text form is a list with commas (`zstd, br, gzip`), or `off`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(transparent)]
pub struct Codings(#[cbor(n(0), with = "Within::<Codings>")] Vec<ContentCoding>);

impl Codings {
    /// No coding: compression is disabled.
    pub const OFF: Self = Self(Vec::new());

    /// Whether compression is disabled.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.0.is_empty()
    }

    /// The codings in order of preference.
    pub fn iter(&self) -> impl Iterator<Item = ContentCoding> {
        self.0.iter().copied()
    }
}

/// Each coding occurs at most once.
impl Bound for Codings {
    type Value = [ContentCoding];
    const FIELD: &'static str = "the content codings";

    fn allows(codings: &[ContentCoding]) -> bool {
        codings.iter().enumerate().all(|(at, coding)| !codings[..at].contains(coding))
    }
}

impl FromIterator<ContentCoding> for Codings {
    fn from_iter<I: IntoIterator<Item = ContentCoding>>(codings: I) -> Self {
        let mut once = Vec::new();
        for coding in codings {
            if !once.contains(&coding) {
                once.push(coding);
            }
        }
        Self(once)
    }
}

impl fmt::Display for Codings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_off() {
            return f.write_str("off");
        }
        for (nth, coding) in self.iter().enumerate() {
            f.write_str(if nth > 0 { ", " } else { "" })?;
            f.write_str(coding.name())?;
        }
        Ok(())
    }
}

impl FromStr for Codings {
    type Err = CodingsError;

    fn from_str(text: &str) -> Result<Self, CodingsError> {
        if text.trim() == "off" {
            return Ok(Self::OFF);
        }
        let mut codings = Vec::new();
        for name in text.split(',').map(str::trim) {
            let coding = ContentCoding::ALL.into_iter().find(|coding| coding.name() == name);
            let coding = coding.ok_or_else(|| CodingsError::Unknown(name.into()))?;
            if codings.contains(&coding) {
                return Err(CodingsError::Twice(coding));
            }
            codings.push(coding);
        }
        Ok(Self(codings))
    }
}

/// The fault in a list of codings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodingsError {
    /// The list has an unknown name.
    Unknown(Box<str>),
    /// The list names a coding twice.
    Twice(ContentCoding),
}

impl fmt::Display for CodingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = match self {
            Self::Unknown(name) => write!(f, "{name:?} is no coding: write gzip, br and zstd"),
            Self::Twice(coding) => {
                write!(f, "{coding} is named twice: write each of gzip, br and zstd once")
            }
        };
        written?;
        f.write_str(" in the order of preference, separated by commas, or off")
    }
}

impl std::error::Error for CodingsError {}

/// A media range: one type (`text/html`), all subtypes of a type (`text/*`), or all types (`*/*`). In lower case, without
/// parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRange(Box<str>);

impl MediaRange {
    /// Whether the range includes a `Content-Type`. The parameters of the `Content-Type` are ignored.
    #[must_use]
    pub fn takes(&self, media_type: &[u8]) -> bool {
        let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        match self.0.strip_suffix('*') {
            Some("*/") => true,
            Some(kind) => {
                essence.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind.as_bytes()))
            }
            None => essence.eq_ignore_ascii_case(self.0.as_bytes()),
        }
    }
}

impl fmt::Display for MediaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for MediaRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl Parse for MediaRange {
    const FIELD: &'static str = "a media type";
}

impl FromStr for MediaRange {
    type Err = MediaRangeError;

    fn from_str(text: &str) -> Result<Self, MediaRangeError> {
        let text = text.trim();
        // RFC 9110, 5.6.2, without the star, which stands for all types.
        let is_token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte))
        };
        match text.split_once('/') {
            Some(("*", "*")) => {}
            Some((kind, "*")) if is_token(kind) => {}
            Some((kind, subtype)) if is_token(kind) && is_token(subtype) => {}
            _ => return Err(MediaRangeError(text.into())),
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }
}

/// The text is not a media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRangeError(Box<str>);

impl fmt::Display for MediaRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no media type: write it as text/html, text/* or */*", self.0)
    }
}

impl std::error::Error for MediaRangeError {}

/// The responses to compress, and the codings and levels for them.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Compression {
    /// The codings for routes without [`Rule::compression`](crate::Rule::compression). Default: off (ingress-nginx
    /// `use-gzip`).
    #[n(0)]
    pub codings: Codings,
    /// The media types to compress. Default: the types of ingress-nginx `gzip-types`, and `text/html`, which nginx always
    /// compresses.
    #[cbor(n(1), with = "List::<Parsed>")]
    pub types: Vec<MediaRange>,
    /// The shortest body to compress, in bytes. A body of unknown length is compressed. Default 256 (ingress-nginx
    /// `gzip-min-length`).
    #[n(2)]
    pub min_length: u64,
    /// The level of each coding.
    #[cbor(n(3), with = "OrDefault")]
    pub levels: Levels,
}

impl Default for Compression {
    fn default() -> Self {
        Self { codings: Codings::OFF, types: default_types(), min_length: 256, levels: Levels::default() }
    }
}

fn default_types() -> Vec<MediaRange> {
    const TYPES: [&str; 18] = [
        "text/html",
        "application/atom+xml",
        "application/javascript",
        "application/x-javascript",
        "application/json",
        "application/rss+xml",
        "application/vnd.ms-fontobject",
        "application/x-font-ttf",
        "application/x-web-app-manifest+json",
        "application/xhtml+xml",
        "application/xml",
        "font/opentype",
        "image/svg+xml",
        "image/x-icon",
        "text/css",
        "text/javascript",
        "text/plain",
        "text/x-component",
    ];
    TYPES.into_iter().map(|name| MediaRange(name.into())).collect()
}

/// The level of each coding. A higher level makes the body smaller and takes longer.
///
/// A level above the default takes more time for little gain. The figures are for 4 MB of JSON in chunks of 16 KiB. gzip left
/// 45% at level 1 (150 MB/s), 31% at 4 (50 MB/s) and 31% at 6 (34 MB/s). brotli left 33% at 2, 32% at 3 (50 MB/s, 1.0 MiB of
/// memory) and 31% at 4 (34 MB/s, 1.9 MiB). zstd left 36% at 1 (215 MB/s), 34% at 3 (150 MB/s) and 30% at 5 (57 MB/s).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Levels {
    /// The level of gzip, 1 to 9. Default 4 (ingress-nginx `gzip-level` is 1).
    #[n(0)]
    pub gzip: GzipLevel,
    /// The level of brotli, 1 to 4. Higher levels take up to 32 MiB for each response. Default 3 (ingress-nginx
    /// `brotli-level` is 4).
    #[n(1)]
    pub brotli: BrotliLevel,
    /// The level of zstd, 1 to 9. Default 3, as in zstd itself.
    #[n(2)]
    pub zstd: ZstdLevel,
}

/// A level of gzip.
pub type GzipLevel = Number<u8, 1, 9>;
/// A level of brotli.
pub type BrotliLevel = Number<u8, 1, 4>;
/// A level of zstd.
pub type ZstdLevel = Number<u8, 1, 9>;

impl Default for Levels {
    fn default() -> Self {
        Self { gzip: GzipLevel::of(4), brotli: BrotliLevel::of(3), zstd: ZstdLevel::of(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_setting_is_parsed_as_off_or_a_list_of_codings() {
        let parsed = |text: &str| text.parse::<Codings>().map(|codings| codings.to_string());
        for (text, expected) in [("gzip", "gzip"), ("zstd, br,gzip", "zstd, br, gzip"), (" off ", "off")] {
            assert_eq!(parsed(text), Ok(expected.to_owned()));
        }
        for (wrong, message) in [
            ("", "\"\" is no coding"),
            ("deflate", "\"deflate\" is no coding"),
            ("gzip, off", "\"off\" is no coding"),
            ("gzip;q=1", "\"gzip;q=1\" is no coding"),
            ("GZIP", "\"GZIP\" is no coding"),
            ("br, gzip, br", "br is named twice"),
        ] {
            let error = parsed(wrong).expect_err(wrong);
            let text = CodingsError::to_string(&error);
            assert!(text.starts_with(message) && text.ends_with("separated by commas, or off"), "{text}");
        }
    }

    #[test]
    fn media_range_matches_in_any_letter_case_and_with_any_parameters() {
        let takes = |range: &str, media_type: &str| {
            range.parse::<MediaRange>().expect("a media range").takes(media_type.as_bytes())
        };
        assert!(takes("text/html", "text/html"));
        assert!(takes("Text/HTML", "TEXT/html ; charset=utf-8"));
        assert!(!takes("text/html", "text/html5"));
        assert!(!takes("text/html", "text/htm"));
        assert!(takes("text/*", "text/css"));
        assert!(!takes("text/*", "application/json; x=text/css"));
        assert!(!takes("text/*", "text"));
        assert!(takes("*/*", "image/png"));
        for wrong in [
            "",
            "text",
            "text/",
            "/html",
            "*/html",
            "te*t/html",
            "text/h*",
            "text/html; charset=utf-8",
            "a/b/c",
        ] {
            let error = wrong.parse::<MediaRange>().expect_err(wrong);
            assert!(error.to_string().contains("write it as text/html"), "{error}");
        }
    }

    #[test]
    fn default_types_are_valid_media_ranges() {
        for range in default_types() {
            assert_eq!(range.to_string().parse(), Ok(range));
        }
    }
}
