//! Lines, areas, bars and text. Classes determine the look, so that a page's style controls it.

use std::fmt::Write as _;

use super::mark::Mark;
use crate::report::words::escape;

/// The drawing.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct Canvas {
    body: String,
}

/// The end of a text at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    pub(in crate::report) fn into_body(self) -> String {
        self.body
    }

    pub(in crate::report) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.write(format_args!(
            "<path class=\"{class}\" d=\"M{} {}L{} {}\"/>",
            short(x1),
            short(y1),
            short(x2),
            short(y2)
        ));
    }

    /// A line through these points, interrupted at each [`None`].
    pub(in crate::report) fn path(
        &mut self,
        class: &str,
        points: impl IntoIterator<Item = Option<(f64, f64)>>,
    ) {
        let mut data = String::new();
        let mut is_begun = false;
        for point in points {
            if let Some((x, y)) = point {
                let letter = if is_begun { 'L' } else { 'M' };
                // Writing to a String does not fail.
                let _ = write!(data, "{letter}{} {}", short(x), short(y));
                if !is_begun {
                    // The round line ends show a piece of one point as a dot.
                    let _ = write!(data, "h0");
                }
            }
            is_begun = point.is_some();
        }
        if !data.is_empty() {
            self.write(format_args!("<path class=\"{class}\" d=\"{data}\"/>"));
        }
    }

    pub(in crate::report) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let (x, y, width, height) = (short(x), short(y), short(width.max(0.0)), short(height.max(0.0)));
        self.write(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    pub(in crate::report) fn mark(&mut self, class: &str, mark: Mark, (x, y): (f64, f64), size: f64) {
        self.write(format_args!("<path class=\"{class}\" d=\"{}\"/>", mark.path(x, y, size)));
    }

    /// `y` is the base line.
    pub(in crate::report) fn text(&mut self, class: &str, anchor: Anchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " middle",
            Anchor::End => " end",
        };
        let (x, y) = (short(x), short(y));
        self.write(format_args!(
            "<text class=\"{class}{anchor}\" x=\"{x}\" y=\"{y}\">{}</text>",
            escape(text)
        ));
    }

    /// Begins a group that ends with [`Self::end`]. The group has a tooltip.
    pub(in crate::report) fn begin(&mut self, class: &str, hint: &str) {
        self.write(format_args!("<g class=\"{class}\"><title>{}</title>", escape(hint)));
    }

    pub(in crate::report) fn end(&mut self) {
        self.body += "</g>";
    }

    fn write(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.body.write_fmt(what);
    }
}

/// A coordinate, rounded to an invisible tenth. An invalid value becomes the corner, so that the drawing stays valid.
pub(super) fn short(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// The approximate width of a text, in the font size of labels. Fonts differ, so the estimate is large.
pub(in crate::report) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.58
}
