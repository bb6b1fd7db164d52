//! Plots in SVG, made by hand: nothing is loaded and nothing runs when one is looked at.
//!
//! | module | what |
//! |---|---|
//! | [`scale`] | where a value lies on an axis, and its ticks |
//! | [`canvas`] | lines, areas, bars and text |
//! | [`frame`] | two axes with their grid, and what is drawn between them |
//! | [`label`] | names at the ends of lines, kept apart |
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
    /// For its file, and its id in a page.
    pub(super) name: String,
    pub(super) title: String,
    /// What it shows, for those who cannot see it.
    pub(super) description: String,
    pub(super) width: f64,
    pub(super) height: f64,
    /// What was drawn.
    pub(super) body: String,
}

impl Plot {
    /// The name of its file.
    pub(super) fn file(&self) -> String {
        format!("{}.svg", self.name)
    }

    /// As a part of a page that has the style of [`super::page`].
    pub(super) fn inline(&self) -> String {
        self.svg("", "")
    }

    /// As a file of its own that looks well on light and on dark pages.
    pub(super) fn standalone(&self) -> String {
        let style = format!("<style>{}{}</style>", super::page::COLOURS, super::page::PLOTS);
        let backdrop = "<rect class=\"backdrop\" width=\"100%\" height=\"100%\" rx=\"6\"/>";
        self.svg(" xmlns=\"http://www.w3.org/2000/svg\"", &(style + backdrop)) + "\n"
    }

    fn svg(&self, attributes: &str, before: &str) -> String {
        let Self { name, width, height, body, .. } = self;
        let (title, description) = (escape(&self.title), escape(&self.description));
        // Its own size is what a browser shows it at where no style says otherwise.
        format!(
            "<svg{attributes} class=\"plot\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-labelledby=\"{name}-title {name}-desc\"><title id=\"{name}-title\">{title}</title>\
             <desc id=\"{name}-desc\">{description}</desc>{before}{body}</svg>"
        )
    }
}
