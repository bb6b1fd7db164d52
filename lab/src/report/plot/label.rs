//! Names at the ends of lines.

/// Moves labels apart, and keeps them between `top` and `bottom`. Returns the place of each, in the given order. Each
/// label moves as little as possible.
pub(in crate::report) fn spread(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    // Labels that touch form a block around the mean of their wanted places; blocks that touch form one block.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for index in &order {
        let mut block = (wanted[*index], 1);
        while let Some(&(middle, size)) = blocks.last() {
            let reach = (size + block.1) as f64 * gap / 2.0;
            if block.0 - middle >= reach {
                break;
            }
            blocks.pop();
            let all = size + block.1;
            block = ((middle * size as f64 + block.0 * block.1 as f64) / all as f64, all);
        }
        blocks.push(block);
    }
    let mut places: Vec<f64> = Vec::with_capacity(wanted.len());
    for (middle, size) in blocks {
        let first = middle - (size as f64 - 1.0) * gap / 2.0;
        places.extend((0..size).map(|index| first + index as f64 * gap));
    }
    // The first pass moves labels down from the top. The second pass moves labels up from the bottom, and has
    // precedence.
    let mut least = top;
    for place in &mut places {
        *place = place.max(least);
        least = *place + gap;
    }
    let mut most = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - gap;
    }
    let mut out = vec![0.0; wanted.len()];
    for (place, index) in places.into_iter().zip(order) {
        out[index] = place;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_without_overlap_keep_their_positions() {
        assert_eq!(spread(&[50.0, 10.0, 30.0], 10.0, 0.0, 100.0), [50.0, 10.0, 30.0]);
        assert!(spread(&[], 10.0, 0.0, 100.0).is_empty());
    }

    #[test]
    fn moved_labels_never_overlap_and_keep_their_order() {
        let wanted = [50.0, 52.0, 51.0, 1.0, 2.0, 98.0, 99.0];
        let places = spread(&wanted, 12.0, 0.0, 100.0);
        let mut both: Vec<(f64, f64)> = wanted.into_iter().zip(places).collect();
        both.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(both.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 11.999), "{both:?}");
        assert!(both.iter().all(|(_, place)| (0.0..=100.0).contains(place)), "{both:?}");
    }
}
