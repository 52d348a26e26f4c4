//! The one sort of the page. The library's sorts are compiled anew for every type and every comparison, 3 to 6 KB of
//! the download each.

use std::cmp::Ordering;

/// The indices below `count` in the order of `compare`; equal ones stay in their order.
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
    fn equal_ones_stay_in_their_order() {
        let values = [2.0, 1.0, f64::NAN, 2.0, -1.0];
        assert_eq!(order(values.len(), &|a, b| values[a].total_cmp(&values[b])), [4, 1, 0, 3, 2]);
    }
}
