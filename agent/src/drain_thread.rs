//! The name of the thread that sends a rank's records. A launcher learns from it which rank a process is, because a thread's name can be
//! read from outside of its process.

use wire::ids::Rank;

/// Linux keeps 15 bytes of a name. That is enough for five digits, and a job has at most 65,536 ranks.
const PREFIX: &str = "paceline-r";

/// Returns the name of the drain thread of a rank: `paceline-r3`.
pub(crate) fn name(rank: Rank) -> String {
    format!("{PREFIX}{rank}")
}

/// Returns the rank whose drain thread has this name; `None` if it is another thread's name.
#[must_use]
pub fn rank_of(name: &str) -> Option<Rank> {
    name.strip_prefix(PREFIX)?.parse().ok().map(Rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_every_rank_fits_and_is_read_back() {
        for rank in [0, 7, 65_535] {
            assert!(name(Rank(rank)).len() <= 15);
            assert_eq!(rank_of(&name(Rank(rank))), Some(Rank(rank)));
        }
        assert_eq!(["paceline-cuda", "python", "paceline-rx"].map(rank_of), [None; 3]);
    }
}
