//! Plots in SVG, written directly, so that a browser loads no file and runs no script.
//!
//! | module | content |
//! |---|---|
//! | [`scale`] | the place of a value on an axis, and ticks |
//! | [`canvas`] | lines, areas, bars and text |
//! | [`frame`] | two axes with their grid, and the drawing between them |
//! | [`label`] | separate names at the ends of lines |
//! | [`mark`] | one shape for each contestant, so that grey print can be read |

pub(super) mod canvas;
pub(super) mod frame;
pub(super) mod label;
pub(super) mod mark;
pub(super) mod scale;

use super::words::escape;

/// A drawing with its name.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// The name of its file, and its id in a page.
    pub(super) name: String,
    pub(super) title: String,
    /// A description for readers who cannot see the plot.
    pub(super) description: String,
    pub(super) width: f64,
    pub(super) height: f64,
    /// The drawing.
    pub(super) body: String,
}

impl Plot {
    /// The name of its file.
    pub(super) fn file(&self) -> String {
        format!("{}.svg", self.name)
    }

    /// The plot as a part of a page that has the style of [`super::page`].
    pub(super) fn inline(&self) -> String {
        self.svg("", "")
    }

    /// The plot as a separate file, for light and for dark pages.
    pub(super) fn standalone(&self) -> String {
        let style = format!("<style>{}{}</style>", super::page::COLOURS, super::page::PLOTS);
        let backdrop = "<rect class=\"backdrop\" width=\"100%\" height=\"100%\" rx=\"6\"/>";
        self.svg(" xmlns=\"http://www.w3.org/2000/svg\"", &(style + backdrop)) + "\n"
    }

    fn svg(&self, attributes: &str, before: &str) -> String {
        let Self { name, width, height, body, .. } = self;
        let (title, description) = (escape(&self.title), escape(&self.description));
        // Without a style, a browser shows the plot in this size.
        format!(
            "<svg{attributes} class=\"plot\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-labelledby=\"{name}-title {name}-desc\"><title id=\"{name}-title\">{title}</title>\
             <desc id=\"{name}-desc\">{description}</desc>{before}{body}</svg>"
        )
    }
}
