//! The pinned ranks, as addresses hold them: `3,17`.

/// Reads pinned ranks. What is not a rank is left out.
#[must_use]
pub fn read(listed: &str) -> Vec<u32> {
    listed.split(',').filter_map(|rank| rank.trim().parse().ok()).collect()
}

/// Writes pinned ranks; `None` if there are none.
#[must_use]
pub fn write(pinned: &[u32]) -> Option<String> {
    (!pinned.is_empty()).then(|| pinned.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
}

/// Returns the pinned ranks after `rank` was pinned, or released if it was pinned.
#[must_use]
pub fn toggled(mut pinned: Vec<u32>, rank: u32) -> Vec<u32> {
    match pinned.iter().position(|&other| other == rank) {
        Some(at) => drop(pinned.remove(at)),
        None => pinned.push(rank),
    }
    pinned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_survive_the_address() {
        assert_eq!(read("3, 17,x"), [3, 17]);
        assert_eq!(write(&[3, 17]).as_deref(), Some("3,17"));
        assert_eq!((write(&[]), read("")), (None, vec![]));
    }

    #[test]
    fn a_second_click_releases_a_rank() {
        assert_eq!(toggled(vec![3], 17), [3, 17]);
        assert_eq!(toggled(vec![3, 17], 3), [17]);
    }
}
