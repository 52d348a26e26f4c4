//! Ranks and numbers of things, as sentences have them.

/// The largest number of runs of ranks that a sentence lists.
const LISTED: usize = 16;

/// Returns ranks as a phrase: `ranks 0-2, 5`.
pub(crate) fn ranks(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let written: Vec<String> = runs
        .iter()
        .take(LISTED)
        .map(|&(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    let more =
        if runs.len() > LISTED { format!(" and others, {} in all", numbers.len()) } else { String::new() };
    format!("{} {}{more}", if numbers.len() == 1 { "rank" } else { "ranks" }, written.join(", "))
}

/// Returns so many things as a phrase: `1 tensor`, `2 tensors`.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_follow_each_other_are_a_run() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[0, 1, 2, 5]), "ranks 0-2, 5");
        let apart: Vec<u32> = (0..20).map(|rank| 2 * rank).collect();
        assert!(ranks(&apart).ends_with("30 and others, 20 in all"), "{}", ranks(&apart));
    }
}
