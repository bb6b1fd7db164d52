//! A straight line through points, by least squares.

/// `y = at_zero + slope * x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) slope: f64,
    pub(super) at_zero: f64,
    /// The share of the spread of y that the line explains: 1 if all points lie on it.
    pub(super) r_squared: f64,
}

impl Line {
    /// [`None`] if the points have fewer than two different values of x.
    pub(super) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
        let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
        let sum = |term: &dyn Fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|(x, y)| term(x - mean_x, y - mean_y)).sum()
        };
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if points.len() < 2 || xx <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        // A level line explains points that all have the same y.
        let r_squared = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
        Some(Self { slope, at_zero: mean_y - slope * mean_x, r_squared })
    }

    pub(super) fn at(&self, x: f64) -> f64 {
        self.at_zero + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_line_matches_a_line_computed_by_hand() {
        // Means 3.75 and 8; xx = 28.75, xy = 56, yy = 110: slope 56 / 28.75, R^2 = 56^2 / (28.75 * 110).
        let line = Line::through(&[(1.0, 2.0), (2.0, 5.0), (4.0, 9.0), (8.0, 16.0)]).unwrap();
        assert!((line.slope - 1.947_826_087).abs() < 1e-9, "{line:?}");
        assert!((line.at_zero - 0.695_652_174).abs() < 1e-9, "{line:?}");
        assert!((line.r_squared - 0.991_620_553).abs() < 1e-9, "{line:?}");
        assert!((line.at(10.0) - 20.173_913_043).abs() < 1e-9, "{line:?}");
    }

    #[test]
    fn single_point_has_no_fitted_line() {
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[(2.0, 1.0), (2.0, 5.0)]), None);
        assert_eq!(
            Line::through(&[(1.0, 3.0), (2.0, 3.0)]),
            Some(Line { slope: 0.0, at_zero: 3.0, r_squared: 1.0 })
        );
    }
}
