//! The two text formats of the exposition, and the choice for a client.

use std::fmt::{self, Write};

use hyper::HeaderMap;
use hyper::header::ACCEPT;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    /// Version 0.0.4 of the older format, which every tool reads.
    Plain,
}

impl Format {
    /// `OpenMetrics` for clients that name the format, as in Prometheus' own libraries; weights are ignored.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let mut types = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
        let names_it = |accept: &str| {
            let mut types = accept.split(',').filter_map(|range| range.split(';').next());
            types.any(|name| name.trim().eq_ignore_ascii_case("application/openmetrics-text"))
        };
        if types.any(names_it) { Self::OpenMetrics } else { Self::Plain }
    }

    /// The media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts `OpenMetrics` text to version 0.0.4, line by line. In the older format a family has the name of its
/// samples, infos are gauges, and the text has neither units nor an end.
pub(super) struct Plain<'w, W> {
    out: &'w mut W,
    line: String,
    /// The last line of help. The kind of the family follows the help and decides the name.
    help: String,
}

impl<'w, W: Write> Plain<'w, W> {
    pub(super) fn new(out: &'w mut W) -> Self {
        Self { out, line: String::new(), help: String::new() }
    }

    fn end_line(&mut self) -> fmt::Result {
        let line = self.line.as_str();
        if line.starts_with("# HELP ") {
            std::mem::swap(&mut self.help, &mut self.line);
            return Ok(());
        }
        if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|line| line.trim_end().split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                // The families without a type are counters whose names have no suffix.
                "unknown" => ("", "counter"),
                kind => ("", kind),
            };
            let help = self.help.splitn(4, ' ').nth(3).unwrap_or("\n");
            return writeln!(self.out, "# HELP {name}{suffix} {help}# TYPE {name}{suffix} {kind}");
        }
        if line.starts_with('#') { Ok(()) } else { self.out.write_str(line) }
    }
}

impl<W: Write> Write for Plain<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive('\n') {
            self.line.push_str(piece);
            if piece.ends_with('\n') {
                self.end_line()?;
                self.line.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn server_sends_openmetrics_only_if_the_accept_header_names_openmetrics() {
        let accepted = |values: &[&'static str]| {
            let values = values.iter().map(|value| (ACCEPT, HeaderValue::from_static(value)));
            Format::accepted(&values.collect())
        };
        for plain in [&[][..], &["*/*"], &["text/plain;version=0.0.4"], &["text/html, application/xml;q=0.9"]]
        {
            assert_eq!(accepted(plain), Format::Plain, "{plain:?}");
        }
        for open in [
            &["application/openmetrics-text"][..],
            &["application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"],
            &["text/plain", "*/*, Application/OpenMetrics-Text; version=0.0.1"],
        ] {
            assert_eq!(accepted(open), Format::OpenMetrics, "{open:?}");
        }
    }

    #[test]
    fn prometheus_text_format_has_names_with_suffixes_and_no_eof_line() -> fmt::Result {
        let mut out = String::new();
        let mut plain = Plain::new(&mut out);
        // Encoders write in arbitrary pieces.
        for piece in [
            "# HELP a_build The # TYPE of it\n# TYPE a_bu",
            "ild info\na_build_info{b=\"# c\"} 1\n",
            "# HELP c_seconds Some time\n# TYPE c_seconds counter\n# UNIT c_seconds seconds\nc_seconds_total",
            " 1\n# HELP h H\n# TYPE h histogram\nh_sum 1\n# EOF\n",
        ] {
            plain.write_str(piece)?;
        }
        assert_eq!(
            out,
            "\
# HELP a_build_info The # TYPE of it
# TYPE a_build_info gauge
a_build_info{b=\"# c\"} 1
# HELP c_seconds_total Some time
# TYPE c_seconds_total counter
c_seconds_total 1
# HELP h H
# TYPE h histogram
h_sum 1
"
        );
        Ok(())
    }
}
