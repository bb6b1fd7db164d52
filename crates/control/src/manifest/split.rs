//! From a file to its documents.
//!
//! YAML is cut at lines that begin with `---`, as in `kubectl`. YAML allows such a line nowhere inside a document, so a
//! document with a syntax error does not affect its neighbours. JSON documents follow each other without a separator,
//! as `jq -c` writes them and `kubectl` reads them: a document with a syntax error makes the rest unreadable too.

use serde::de::IgnoredAny;

/// The YAML documents of a file, each with the line on which it begins, from 1. A `---` belongs to the document that
/// it opens; directives before it too.
pub(crate) fn yaml(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rest = text;
    let mut line = 1;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (document, lines, remainder) = first_document(rest);
            let begins = line;
            line += lines;
            rest = remainder;
            if has_content(document) {
                return Some((begins, document));
            }
        }
        None
    })
}

/// The JSON documents of a file, each with the line on which it begins, from 1. The first unreadable document and all
/// text after it are one document.
pub(crate) fn json(text: &str) -> Vec<(u32, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let mut line = 1;
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        let end = match values.next() {
            Some(Ok(_)) => values.byte_offset(),
            Some(Err(_)) | None => rest.len(),
        };
        let (document, remainder) = rest.split_at(end);
        let lines = document.bytes().filter(|byte| *byte == b'\n').count();
        documents.push((line, document));
        line += u32::try_from(lines).unwrap_or(u32::MAX - line);
        rest = remainder;
    }
    documents
}

/// The first document, its number of lines, and the text after it.
fn first_document(text: &str) -> (&str, u32, &str) {
    let mut lines = 0;
    let mut end = 0;
    // Until content is seen, a `---` opens this document; after it, the next one.
    let mut opened = false;
    for line in text.split_inclusive('\n') {
        let is_marker = is_marker(line);
        if is_marker && opened {
            break;
        }
        opened |= is_marker || is_content(line);
        lines += 1;
        end += line.len();
    }
    let (document, rest) = text.split_at(end);
    (document, lines, rest)
}

/// `---`, alone or followed by white space (YAML 1.2, 9.1.2).
fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Neither blank, nor a comment, nor a directive.
fn is_content(line: &str) -> bool {
    !line.starts_with('%') && !matches!(line.trim_start().bytes().next(), None | Some(b'#'))
}

/// Whether a document contains more than markers, comments and blank lines.
fn has_content(document: &str) -> bool {
    document.lines().any(|line| {
        let line = if is_marker(line) { &line[3..] } else { line };
        is_content(line) && line.trim() != "..."
    })
}

/// The line, from 1, of the beginning of a document's content.
pub(crate) fn first_content_line(document: &str) -> u32 {
    let before = document.lines().take_while(|line| !is_content(line) || line.trim_end() == "---").count();
    u32::try_from(before).unwrap_or(u32::MAX - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::{first_content_line, json, yaml};

    #[test]
    fn yaml_file_is_split_at_document_markers() {
        for (text, expected) in [
            ("", vec![]),
            ("\n# only a comment\n---\n---\n...\n", vec![]),
            ("a: 1", vec![(1, "a: 1")]),
            ("a: 1\n---\nb: 2\n", vec![(1, "a: 1\n"), (2, "---\nb: 2\n")]),
            ("---\na: 1\n---\nb: 2", vec![(1, "---\na: 1\n"), (3, "---\nb: 2")]),
            ("# first\n---\na: 1\n", vec![(1, "# first\n---\na: 1\n")]),
            ("%YAML 1.2\n---\na: 1\n", vec![(1, "%YAML 1.2\n---\na: 1\n")]),
            ("--- {a: 1}\n--- # two\nb: 2\n", vec![(1, "--- {a: 1}\n"), (2, "--- # two\nb: 2\n")]),
            ("a: |\n  ---\n  x\n----: 1\n", vec![(1, "a: |\n  ---\n  x\n----: 1\n")]),
            ("a: 1\r\n---\r\nb: 2\r\n", vec![(1, "a: 1\r\n"), (2, "---\r\nb: 2\r\n")]),
            ("\u{feff}a: 1\n", vec![(1, "a: 1\n")]),
        ] {
            assert_eq!(yaml(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }

    #[test]
    fn json_file_is_split_after_each_value() {
        for (text, expected) in [
            (" \n", vec![]),
            ("{\n}\n", vec![(1, "{\n}")]),
            ("{\n}\n{}\n\n{}", vec![(1, "{\n}"), (2, "\n{}"), (3, "\n\n{}")]),
            ("{}{}\n", vec![(1, "{}"), (1, "{}")]),
            ("{}\n{]\n{}\n", vec![(1, "{}"), (1, "\n{]\n{}")]),
            ("\u{feff}{}", vec![(1, "{}")]),
        ] {
            assert_eq!(json(text), expected, "{text:?}");
        }
    }

    #[test]
    fn first_content_line_of_a_document_is_neither_a_marker_nor_a_comment() {
        assert_eq!(first_content_line("# x\n---\n\nkind: A\n"), 4);
        assert_eq!(first_content_line("kind: A\n"), 1);
    }
}
