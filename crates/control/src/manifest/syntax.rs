//! From the text of a document to an untyped value; errors in plain words.

use granit_parser::ErrorKind;
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::localizer::ExternalMessageSource;

use super::{Syntax, aliases};

/// The greatest depth of nested lists and mappings in a YAML document.
pub(super) const YAML_DEPTH_MAX: usize = 64;

/// The greatest depth of JSON: the limit of `serde_json`.
const JSON_DEPTH_MAX: usize = 128;

const ENDS_TOO_EARLY: &str = "the document ends too early";
const EXPANDS_TOO_MUCH: &str = "its aliases expand to too much: write the parts out, or use fewer aliases";
const NO_ANCHOR: &str = "an alias names no anchor: put text that begins with '*' in quotes";

/// An error that prevents the reading of a document.
#[derive(Debug)]
pub(super) struct SyntaxFault {
    /// The line from 1, counted in the document.
    pub(super) line: Option<u32>,
    /// The message, without any of the document's values, which may be the values of a Secret.
    pub(super) message: String,
}

impl Syntax {
    pub(super) fn parse(self, text: &str) -> Result<Value, SyntaxFault> {
        match self {
            Self::Yaml => yaml(text, yaml_options()),
            Self::Json => serde_json::from_str(text)
                .map_err(|error| SyntaxFault::new(Some(error.line() as u64), json_in_words(&error))),
        }
    }
}

impl SyntaxFault {
    /// The fault with its line, if the line is known.
    pub(super) fn in_words(self) -> String {
        match self.line {
            Some(line) => format!("line {line}: {}", self.message),
            None => self.message,
        }
    }

    fn new(line: Option<u64>, message: String) -> Self {
        Self { line: line.and_then(|line| u32::try_from(line).ok()), message }
    }
}

/// Parses a document of OpenAPI: YAML 1.2, in which `yes`, `NO` and `off` are text (OpenAPI 3.1, "Format"). Numbers with leading
/// zeros are text, because they are codes.
pub(super) fn parse_openapi(text: &str) -> Result<Value, SyntaxFault> {
    let mut options = yaml_options();
    options.strict_booleans = true;
    options.leading_zero_numbers_as_strings = true;
    yaml(text, options)
}

fn yaml(text: &str, options: serde_saphyr::Options) -> Result<Value, SyntaxFault> {
    aliases::check(text).map_err(|expansion| SyntaxFault {
        line: Some(expansion.line),
        message: expansion.excess.to_string(),
    })?;
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        SyntaxFault::new(error.location().map(|location| location.line()), yaml_in_words(&error))
    })
}

/// Room for a `List` of 100,000 objects, and for as many aliases; [`aliases`] bounds their expansion.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: YAML_DEPTH_MAX,
            max_events: 20_000_000,
            max_nodes: 10_000_000,
            max_total_scalar_bytes: 256 * 1024 * 1024,
        },
        with_snippet: false,
    }
}

fn yaml_in_words(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            return format!("the key {} is written twice", key.escape_debug());
        }
        Error::DuplicateMappingKey { key: None, .. } => "a key is written twice",
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            return format!("the document is nested deeper than {YAML_DEPTH_MAX} levels");
        }
        Error::Budget {
            breach: BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } | BudgetBreach::ScalarBytes { .. },
            ..
        } => "the document is too large: split it",
        Error::AliasError { error, .. } => match &**error {
            Error::Budget { .. } => EXPANDS_TOO_MUCH,
            error => return yaml_in_words(error),
        },
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => EXPANDS_TOO_MUCH,
        Error::RecursiveReferencesRequireWeakTypes { .. } => "an anchor contains itself",
        Error::UnknownAnchor { .. } => NO_ANCHOR,
        Error::MergeValueNotMapOrSeqOfMaps { .. } => "'<<' takes a mapping, or a list of mappings",
        Error::Eof { .. } => ENDS_TOO_EARLY,
        // Every event can be a value, so an unexpected event is the key of a mapping.
        Error::Unexpected { .. } => {
            "a key is a list or a mapping: put text that begins with '{' or '[' in quotes, and render templates first"
        }
        Error::NullIntoString { .. } => "a key is empty or null: put it in quotes",
        Error::NonFiniteFloat { .. } => "a number is infinite or not a number: put text in quotes",
        Error::InvalidScalar { .. } | Error::UnsupportedTag { .. } => {
            "a value does not fit its tag: put text that begins with '!' in quotes"
        }
        Error::ExternalMessage { source, .. } => match &**source {
            ExternalMessageSource::Parser(error) => return scan_in_words(error.kind()),
            _ => "it is not valid YAML",
        },
        _ => "it is not valid YAML",
    }
    .to_owned()
}

/// The rule that the text itself violates.
fn scan_in_words(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::UnexpectedEof
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::UnexpectedEofBlockSequence
        | ErrorKind::UnexpectedEofBlockMapping => ENDS_TOO_EARLY,
        ErrorKind::UnclosedFlowCollection { open } => return format!("'{open}' is not closed"),
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            return format!("'{open}' is closed by '{close}'");
        }
        ErrorKind::MisplacedFlowCollectionEnd => "a closing bracket has no opening bracket",
        ErrorKind::ExpectedFlowMappingSeparator => "',' or '}' is missing",
        ErrorKind::ExpectedFlowSequenceSeparator => "',' or ']' is missing",
        ErrorKind::RecursionLimitExceeded => {
            return format!("the document is nested deeper than {YAML_DEPTH_MAX} levels");
        }
        ErrorKind::UnclosedQuotedScalar | ErrorKind::DocumentIndicatorInQuotedScalar => {
            "a quote is not closed"
        }
        ErrorKind::UnknownQuotedScalarEscape
        | ErrorKind::InvalidQuotedScalarHexEscape
        | ErrorKind::InvalidUnicodeEscape
        | ErrorKind::InvalidLowSurrogateHexEscape
        | ErrorKind::InvalidLowSurrogate
        | ErrorKind::MissingLowSurrogate
        | ErrorKind::UnpairedLowSurrogate => {
            "a backslash in double quotes begins no known escape: write it twice, or use single quotes"
        }
        ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar => {
            "text follows a closing quote"
        }
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar => "a tab is not allowed here: indent with spaces",
        ErrorKind::InvalidIndentation
        | ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::InvalidBlockScalarIndent
        | ErrorKind::InvalidQuotedScalarIndent
        | ErrorKind::InvalidFlowScalarIndent => "the indentation does not match the lines above",
        ErrorKind::MappingValueNotAllowed
        | ErrorKind::MappingKeyNotAllowed
        | ErrorKind::InvalidColonPlacement
        | ErrorKind::FlowMappingValueAdjacentCollection
        | ErrorKind::InvalidMappingValueWhitespace => {
            "a ':' is not allowed here: check the indentation, and put text that contains \": \" in quotes"
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => "a key has no ':'",
        ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
            return format!("the control character U+{:04X} is not allowed", u32::from(*character));
        }
        ErrorKind::UnexpectedCharacter { character } => {
            return format!("text begins with '{character}': put it in quotes");
        }
        ErrorKind::CommentNotSeparated | ErrorKind::CommentInterceptedScalar => {
            "a comment is not allowed here: put a space before '#', and put text that contains \" #\" in quotes"
        }
        ErrorKind::UnknownAnchor | ErrorKind::MissingAnchorOrAliasName => NO_ANCHOR,
        _ => "it is not valid YAML",
    }
    .to_owned()
}

/// `serde_json` gives the error only as text.
fn json_in_words(error: &serde_json::Error) -> String {
    if error.is_eof() {
        return ENDS_TOO_EARLY.to_owned();
    }
    let text = error.to_string();
    match text.split(" at line ").next().unwrap_or_default() {
        "recursion limit exceeded" => format!("the document is nested deeper than {JSON_DEPTH_MAX} levels"),
        "expected value" => "a value is missing, or text has no quotes".to_owned(),
        "trailing comma" => "a ',' precedes a closing bracket: remove it".to_owned(),
        "trailing characters" => "text follows the end of the document".to_owned(),
        "invalid escape" => "a backslash begins no known escape: write it twice".to_owned(),
        other => other.replace('`', "'"),
    }
}

#[cfg(test)]
mod tests {
    use super::Syntax;

    #[track_caller]
    fn check(syntax: Syntax, text: &str, line: u32, message: &str) {
        let fault = syntax.parse(text).unwrap_err();
        assert!(fault.message.contains(message), "{text:?}: {}", fault.message);
        assert_eq!(fault.line, Some(line), "{text:?}");
    }

    #[test]
    fn yaml_syntax_error_has_a_plain_message_and_its_line() {
        for (text, line, message) in [
            ("a: 1\nports: 1\nports: 2\n", 3, "the key ports is written twice"),
            ("a:\n  b: [1", 2, "'[' is not closed"),
            ("a: [1, 2}", 1, "'[' is closed by '}'"),
            ("a: \"x\\q\"", 1, "a backslash in double quotes begins no known escape"),
            ("a: 'x", 1, "a quote is not closed"),
            ("a: 'x' y", 1, "text follows a closing quote"),
            ("a:\n\tb: 1", 2, "indent with spaces"),
            ("a:\n  - b\n c: 1", 3, "the indentation does not match"),
            ("- a\nb: 1", 2, "the indentation does not match"),
            ("a: b: c", 1, "a ':' is not allowed here"),
            ("a: *x", 1, "an alias names no anchor"),
            ("a: &a [*a]", 1, "an anchor contains itself"),
            ("a: @x", 1, "text begins with '@': put it in quotes"),
            ("a: \u{1}", 1, "the control character U+0001"),
            ("a: {{ .Values.x }}", 1, "render templates first"),
            ("null: 1", 1, "a key is empty or null"),
            ("<<: 3", 1, "'<<' takes a mapping"),
            ("a: .inf", 1, "a number is infinite"),
            ("a: !!int x", 1, "does not fit its tag"),
        ] {
            check(Syntax::Yaml, text, line, message);
        }
        let deep = format!("a: {}{}", "[".repeat(64), "]".repeat(64));
        check(Syntax::Yaml, &deep, 1, "the document is nested deeper than 64 levels");
    }

    #[test]
    fn small_document_with_huge_alias_expansion_is_rejected() {
        let mut text = format!("a0: &a0 [{}]\n", "x,".repeat(10));
        for level in 1..10 {
            let aliases = format!("*a{},", level - 1).repeat(10);
            text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        let fault = Syntax::Yaml.parse(&text).unwrap_err();
        assert!(fault.message.starts_with("its aliases expand to more than 4096 nodes"), "{}", fault.message);
    }

    #[test]
    fn json_syntax_error_has_a_plain_message_and_its_line() {
        for (text, line, message) in [
            ("{\n\"a\": \n}", 3, "a value is missing"),
            ("{\"a\": 1,}", 1, "a ',' precedes a closing bracket"),
            ("{\"a\": 1", 1, "the document ends too early"),
            ("{\"a\" 1}", 1, "expected ':'"),
            (&"[".repeat(200), 1, "the document is nested deeper than 128 levels"),
        ] {
            check(Syntax::Json, text, line, message);
        }
    }
}
