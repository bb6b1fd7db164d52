//! The log: one line for each event.
//!
//! Messages and fields contain names that users choose: of files, objects, annotations. A line break in a name must not begin
//! a line that looks like another event. Every line passes through this module, from all parts of the program, in text and in
//! JSON.

use std::io::{self, Write};

use sluicegate_model::text::one_line;

/// Receives each event in one write, and writes the event as one line.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    to: W,
    /// Whether lines have colours, as escape sequences of `tracing-subscriber`.
    has_colours: bool,
}

impl<W: Write> Lines<W> {
    pub(crate) fn new(to: W, has_colours: bool) -> Self {
        Self { to, has_colours }
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
        let mut out = String::with_capacity(event.len());
        for (nth, part) in line.split('\u{1b}').enumerate() {
            if nth > 0 {
                let is_colour = self.has_colours && COLOURS.iter().any(|colour| part.starts_with(colour));
                out.push_str(if is_colour { "\u{1b}" } else { "\\u001b" });
            }
            out.push_str(&one_line(part));
        }
        out.push_str(end);
        self.to.write_all(out.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The sequences of `tracing-subscriber` after the escape: colours, bold, dim and italic. The crate escapes other sequences
/// in messages, but not in all fields.
const COLOURS: [&str; 10] = ["[0m", "[1m", "[2m", "[3m", "[31m", "[32m", "[33m", "[34m", "[35m", "[36m"];

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const FORGED: &str = "a.yaml\n2026-01-01T00:00:00Z ERROR forged\r\u{85}\u{2028}\u{202e}\u{1b}[2J";

    fn logged(is_json: bool, has_colours: bool) -> String {
        let written = Written::default();
        let to = written.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || Lines::new(to.clone(), has_colours));
        let log = || {
            tracing::error!(path = FORGED, file = %FORGED, debug = ?FORGED, "{FORGED} cannot be read");
            tracing::info!("next");
        };
        let registry = tracing_subscriber::registry();
        match is_json {
            true => tracing::subscriber::with_default(registry.with(layer.json()), log),
            false => tracing::subscriber::with_default(registry.with(layer.with_ansi(has_colours)), log),
        }
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn log_event_is_one_line_even_if_names_contain_line_breaks() {
        for (is_json, has_colours) in [(false, false), (false, true), (true, false)] {
            let text = logged(is_json, has_colours);
            assert_eq!(text.lines().count(), 2, "{text:?}");
            for forbidden in ['\r', '\u{85}', '\u{2028}', '\u{202e}'] {
                assert!(!text.contains(forbidden), "{text:?}");
            }
            assert!(!text.contains("\u{1b}[2J"), "{text:?}");
            assert_eq!(text.contains('\u{1b}'), has_colours, "{text:?}");
        }
    }

    #[test]
    fn json_log_line_preserves_names_with_line_breaks() {
        let text = logged(true, false);
        let event: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(event["fields"]["path"], FORGED);
        assert_eq!(event["fields"]["message"], format!("{FORGED} cannot be read"));
    }
}
