//! The page around the report: one file that loads no other file and runs no script.

use super::plot::Plot;
use super::plot::canvas::Canvas;
use super::plot::mark::Mark;
use super::words::{escape, glue};

/// The colours for light and dark screens, and for paper.
pub(super) const COLOURS: &str = include_str!("colours.css");

/// The look of plots.
pub(super) const PLOTS: &str = include_str!("plots.css");

const PAGE: &str = include_str!("page.css");

/// Forbids the page to load or run anything, even if a displayed name contains an attack.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole page.
pub(super) fn whole(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{COLOURS}{PLOTS}{PAGE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// A plot in a separate box, which scrolls if the plot would be too small to read.
pub(super) fn figure(plot: &Plot) -> String {
    let title = escape(&plot.title);
    format!(
        "<figure><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">{}</div></figure>\n",
        plot.inline()
    )
}

/// Small plots beside each other; empty if there are none.
pub(super) fn figures(plots: &[Plot]) -> String {
    if plots.is_empty() {
        return String::new();
    }
    let each: String = plots.iter().map(|plot| format!("<figure>{}</figure>\n", plot.inline())).collect();
    format!("<div class=\"grid-of-plots\">\n{each}</div>\n")
}

/// A heading with its body; empty if the body is empty.
pub(super) fn section(title: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section><h2>{}</h2>\n{body}</section>\n", escape(title))
}

pub(super) fn paragraph(class: &str, text: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<p{class}>{}</p>\n", escape(&glue(text)))
}

/// The colour and the mark of a contestant, before its name.
pub(super) fn swatch(slot: usize) -> String {
    let mut canvas = Canvas::default();
    canvas.mark("", Mark::of(slot), (8.0, 8.0), 5.5);
    let series = super::percentiles::series(slot);
    format!(
        "<svg class=\"swatch {series}\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">{}</svg>",
        canvas.into_body()
    )
}
