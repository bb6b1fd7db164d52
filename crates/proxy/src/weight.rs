//! The random choice by weight.

/// The index of the chosen weight. Each weight has the probability of its part of the sum; `None` if the sum is 0.
/// `random` returns a number below its argument.
pub(crate) fn choose(
    weights: impl Iterator<Item = u32> + Clone,
    random: impl FnOnce(u64) -> u64,
) -> Option<usize> {
    let sum: u64 = weights.clone().map(u64::from).sum();
    let mut left = (sum > 0).then(|| random(sum))?;
    weights.into_iter().position(|weight| match left.checked_sub(u64::from(weight)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_of_weight_n_is_selected_by_exactly_n_random_values() {
        let chosen = |number| choose([2, 0, 3].into_iter(), |_| number);
        assert_eq!([0, 1, 2, 3, 4].map(chosen), [Some(0), Some(0), Some(2), Some(2), Some(2)]);
        assert_eq!(choose([0, 0].into_iter(), |_| 0), None);
        assert_eq!(choose([].into_iter(), |_| 0), None);
    }
}
