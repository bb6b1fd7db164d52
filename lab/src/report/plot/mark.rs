//! The shapes by which readers distinguish contestants without colours.

use super::canvas::short;

/// A shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Down,
    Plus,
    Bar,
    Pentagon,
    Ring,
    /// Reserved for the end of a curve with requests that received no response.
    Cross,
}

impl Mark {
    /// The shapes, as many as there are colours.
    pub(in crate::report) const ALL: [Self; 9] = [
        Self::Circle,
        Self::Square,
        Self::Triangle,
        Self::Diamond,
        Self::Down,
        Self::Plus,
        Self::Bar,
        Self::Pentagon,
        Self::Ring,
    ];

    /// The shape of the contestant at this place.
    pub(in crate::report) fn of(slot: usize) -> Self {
        Self::ALL[slot % Self::ALL.len()]
    }

    /// The path of its outline; `size` is about its radius.
    pub(super) fn path(self, x: f64, y: f64, size: f64) -> String {
        match self {
            Self::Circle => circle(x, y, size),
            // The inner circle has the opposite direction, which leaves a hole.
            Self::Ring => circle(x, y, size * 1.1) + &hole(x, y, size * 0.5),
            Self::Square => polygon(x, y, size * 1.25, &[45.0, 135.0, 225.0, 315.0]),
            Self::Triangle => polygon(x, y, size * 1.35, &[270.0, 30.0, 150.0]),
            Self::Down => polygon(x, y, size * 1.35, &[90.0, 210.0, 330.0]),
            Self::Diamond => polygon(x, y, size * 1.35, &[0.0, 90.0, 180.0, 270.0]),
            Self::Pentagon => polygon(x, y, size * 1.2, &[270.0, 342.0, 54.0, 126.0, 198.0]),
            Self::Bar => rectangle(x, y, size * 1.4, size * 0.5),
            Self::Plus => rectangle(x, y, size * 1.3, size * 0.4) + &rectangle(x, y, size * 0.4, size * 1.3),
            Self::Cross => {
                let [left, right, top, bottom] = [x - size, x + size, y - size, y + size].map(short);
                format!("M{left} {top}L{right} {bottom}M{left} {bottom}L{right} {top}")
            }
        }
    }
}

fn circle(x: f64, y: f64, radius: f64) -> String {
    let [left, y, radius, across] = [x - radius, y, radius, 2.0 * radius].map(short);
    format!("M{left} {y}a{radius} {radius} 0 1 0 {across} 0a{radius} {radius} 0 1 0 -{across} 0z")
}

fn hole(x: f64, y: f64, radius: f64) -> String {
    let [left, y, radius, across] = [x - radius, y, radius, 2.0 * radius].map(short);
    format!("M{left} {y}a{radius} {radius} 0 1 1 {across} 0a{radius} {radius} 0 1 1 -{across} 0z")
}

fn rectangle(x: f64, y: f64, half_width: f64, half_height: f64) -> String {
    let [left, top, width, height] =
        [x - half_width, y - half_height, 2.0 * half_width, 2.0 * half_height].map(short);
    format!("M{left} {top}h{width}v{height}h-{width}z")
}

fn polygon(x: f64, y: f64, radius: f64, degrees: &[f64]) -> String {
    let mut path = String::new();
    for (index, degree) in degrees.iter().enumerate() {
        let (sine, cosine) = degree.to_radians().sin_cos();
        path += if index == 0 { "M" } else { "L" };
        path += &format!("{} {}", short(x + radius * cosine), short(y + radius * sine));
    }
    path + "z"
}
