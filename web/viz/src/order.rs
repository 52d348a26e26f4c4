//! The only sort of the dashboard. The standard library's sorts are compiled for every type and every comparison, 3 to
//! 6 KB of the download each.

use std::cmp::Ordering;

/// Returns the indices below `count` in the order of `compare`. Equal elements keep their order.
#[must_use]
pub fn order(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_unstable_by(|&a, &b| compare(a as usize, b as usize).then(a.cmp(&b)));
    order
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn equal_elements_keep_their_order() {
        let values = [2.0, 1.0, f64::NAN, 2.0, -1.0];
        assert_eq!(order(values.len(), &|a, b| values[a].total_cmp(&values[b])), [4, 1, 0, 3, 2]);
    }
}
