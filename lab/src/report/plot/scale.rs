//! The places of values on an axis.

/// The mapping from values to places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) enum Scale {
    Linear {
        low: f64,
        high: f64,
    },
    /// Both ends above 0.
    Log {
        low: f64,
        high: f64,
    },
    /// Quantiles from 0 to this many nines (possibly a fraction), with the same room for each nine: 0 %, 90 %, 99 %,
    /// 99.9 %, ...
    Quantile {
        nines: f64,
    },
}

/// A line of the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) struct Tick {
    pub(in crate::report) value: f64,
    /// Whether the line is strong, and has a label.
    pub(in crate::report) is_major: bool,
}

impl Scale {
    /// A scale from 0 to a round number at or above `most`.
    pub(in crate::report) fn from_zero(most: f64) -> Self {
        let step = step(most.max(f64::MIN_POSITIVE), 5.0);
        Self::Linear { low: 0.0, high: (most / step - 1e-9).ceil().max(1.0) * step }
    }

    /// Logarithmic, from 1, 2 or 5 at or below the least to 1, 2 or 5 at or above the most.
    pub(in crate::report) fn log(least: f64, most: f64) -> Self {
        let low = round_log(least, false);
        let high = round_log(most.max(least), true);
        // An axis without a length has no places.
        if high > low * 1.01 { Self::Log { low, high } } else { Self::Log { low, high: low * 10.0 } }
    }

    /// The place of a value within the axis, 0 to 1.
    pub(in crate::report) fn place(&self, value: f64) -> f64 {
        match *self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Log { low, high } => (value.max(f64::MIN_POSITIVE) / low).log10() / (high / low).log10(),
            Self::Quantile { nines } => -(1.0 - value).max(1e-12).log10() / nines,
        }
    }

    /// The ticks in ascending order.
    pub(in crate::report) fn ticks(&self) -> Vec<Tick> {
        match *self {
            Self::Linear { low, high } => linear(low, high),
            Self::Log { low, high } => logarithmic(low, high),
            Self::Quantile { nines } => quantiles(nines),
        }
    }
}

/// 1, 2 or 5 of some power of ten, for about this many steps.
fn step(length: f64, steps: f64) -> f64 {
    let rough = length / steps;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

fn round_log(value: f64, up: bool) -> f64 {
    let value = value.max(1e-9);
    let power = 10f64.powf(value.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let rounded = if up {
        factors.into_iter().find(|factor| factor * power >= value * 0.999_999)
    } else {
        factors.into_iter().rev().find(|factor| factor * power <= value * 1.000_001)
    };
    rounded.unwrap_or(1.0) * power
}

fn linear(low: f64, high: f64) -> Vec<Tick> {
    let step = step(high - low, 5.0);
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|index| Tick { value: index as f64 * step, is_major: true }).collect()
}

/// Powers of ten are major; within less than two powers, 2 and 5 are major too.
fn logarithmic(low: f64, high: f64) -> Vec<Tick> {
    let is_short = high / low < 99.0;
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let mut ticks = Vec::new();
    for power in first..=last {
        for factor in 1..10 {
            let value = f64::from(factor) * 10f64.powi(power);
            if value > low * 0.999 && value < high * 1.001 {
                let is_major = factor == 1 || is_short && (factor == 2 || factor == 5);
                ticks.push(Tick { value, is_major });
            }
        }
    }
    ticks
}

fn quantiles(nines: f64) -> Vec<Tick> {
    let mut ticks = vec![Tick { value: 0.0, is_major: true }];
    // A curve may end at its last nine, which rounding must not remove.
    for count in 0..=(nines + 1e-9) as i32 {
        if count > 0 {
            ticks.push(Tick { value: 1.0 - 10f64.powi(-count), is_major: true });
        }
        let half = 1.0 - 0.5 * 10f64.powi(-count);
        if -(1.0 - half).log10() < nines {
            ticks.push(Tick { value: half, is_major: count == 0 && nines < 4.5 });
        }
    }
    ticks
}

/// `99.9 %`, for a quantile with this many nines.
pub(in crate::report) fn percent(quantile: f64) -> String {
    let text = format!("{:.6}", quantile * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<f64> {
        scale.ticks().into_iter().filter(|tick| tick.is_major).map(|tick| tick.value).collect()
    }

    #[test]
    fn linear_axis_has_steps_of_one_two_or_five() {
        assert_eq!(Scale::from_zero(47.0), Scale::Linear { low: 0.0, high: 50.0 });
        assert_eq!(labels(Scale::from_zero(47.0)), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(labels(Scale::from_zero(7.0)), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(labels(Scale::Linear { low: 0.0, high: 61.0 }), [0.0, 20.0, 40.0, 60.0]);
        assert!(labels(Scale::from_zero(0.0)).len() > 1);
    }

    #[test]
    fn logarithmic_axis_has_ticks_at_powers_of_ten() {
        let scale = Scale::log(0.31, 61_000.0);
        assert_eq!(scale, Scale::Log { low: 0.2, high: 100_000.0 });
        assert_eq!(labels(scale), [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!(labels(Scale::log(1.2, 8.0)), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!((scale.place(0.2), scale.place(100_000.0)), (0.0, 1.0));
        assert_eq!(Scale::log(1.0, 1.0), Scale::Log { low: 1.0, high: 10.0 });
    }

    #[test]
    fn percentile_axis_gives_each_additional_nine_the_same_width() {
        let scale = Scale::Quantile { nines: 6.0 };
        let texts: Vec<String> = labels(scale).into_iter().map(percent).collect();
        assert_eq!(texts, ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"]);
        let places = [0.0, 0.9, 0.99, 0.999, 0.9999, 0.99999].map(|quantile| scale.place(quantile) * 6.0);
        for (place, nines) in places.iter().zip(0..) {
            assert!((place - f64::from(nines)).abs() < 1e-6, "{place}");
        }
        assert!(scale.place(1.0).is_finite());
        assert!(scale.ticks().is_sorted_by(|one, other| one.value < other.value));
    }
}
