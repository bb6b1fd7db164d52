//! Two axes, and the drawing between them.

use super::canvas::{Anchor, Canvas};
use super::scale::Scale;

/// The room between two axes.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct Frame {
    pub(in crate::report) left: f64,
    pub(in crate::report) top: f64,
    pub(in crate::report) width: f64,
    pub(in crate::report) height: f64,
    pub(in crate::report) x: Scale,
    pub(in crate::report) y: Scale,
}

impl Frame {
    pub(in crate::report) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(in crate::report) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// The place of a value on the horizontal axis; values beyond an end are at the end.
    pub(in crate::report) fn at_x(&self, value: f64) -> f64 {
        self.left + self.x.place(value).clamp(0.0, 1.0) * self.width
    }

    pub(in crate::report) fn at_y(&self, value: f64) -> f64 {
        self.bottom() - self.y.place(value).clamp(0.0, 1.0) * self.height
    }

    pub(in crate::report) fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.at_x(x), self.at_y(y))
    }

    /// The lines of the vertical axis with its labels left of it.
    pub(in crate::report) fn draw_y(&self, canvas: &mut Canvas, label: impl Fn(f64) -> String) {
        for tick in self.y.ticks() {
            let y = self.at_y(tick.value);
            let class = if tick.is_major { "grid" } else { "grid minor" };
            canvas.line(class, (self.left, y), (self.right(), y));
            if tick.is_major {
                canvas.text("tick", Anchor::End, self.left - 7.0, y + 4.0, &label(tick.value));
            }
        }
    }

    /// The lines of the horizontal axis with its labels below, and the base line.
    pub(in crate::report) fn draw_x(&self, canvas: &mut Canvas, label: impl Fn(f64) -> String) {
        for tick in self.x.ticks() {
            let x = self.at_x(tick.value);
            let class = if tick.is_major { "grid" } else { "grid minor" };
            canvas.line(class, (x, self.top), (x, self.bottom()));
            if tick.is_major {
                canvas.text("tick", Anchor::Middle, x, self.bottom() + 17.0, &label(tick.value));
            }
        }
        self.draw_base(canvas);
    }

    /// Lines at only these values of the vertical axis, if there is no room for more.
    pub(in crate::report) fn draw_few(
        &self,
        canvas: &mut Canvas,
        values: &[f64],
        label: impl Fn(f64) -> String,
    ) {
        for value in values {
            let y = self.at_y(*value);
            canvas.line("grid", (self.left, y), (self.right(), y));
            canvas.text("tick", Anchor::End, self.left - 7.0, y + 4.0, &label(*value));
        }
    }

    /// The base line of the plot.
    pub(in crate::report) fn draw_base(&self, canvas: &mut Canvas) {
        canvas.line("axis", (self.left, self.bottom()), (self.right(), self.bottom()));
    }
}
