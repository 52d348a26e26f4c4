//! Hang detection: a run with no completed step for max(10 x median step, 10 s) says so and names who is
//! waited for.

use wire::ids::{Rank, Seq};
use wire::views::Hang;

const LEAST_LIMIT_SECONDS: f64 = 10.0;
const STEPS: f64 = 10.0;

/// What is known of one rank's way through its collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The newest collective it has launched.
    pub launched: Option<Seq>,
    /// Seconds since anything came from it.
    pub silent_seconds: u64,
}

/// Says whether a run hangs. `since_seconds` is the time since its last completed step.
#[must_use]
pub fn detect(since_seconds: f64, median_step_seconds: Option<f64>, ranks: &[Progress]) -> Option<Hang> {
    let limit_seconds = (median_step_seconds.unwrap_or(0.0) * STEPS).max(LEAST_LIMIT_SECONDS);
    if since_seconds < limit_seconds {
        return None;
    }
    let furthest = ranks.iter().filter_map(|rank| rank.launched).max();
    let behind: Vec<Rank> = (0..ranks.len())
        .filter(|&rank| ranks[rank].launched < furthest)
        .map(|rank| Rank(rank as u32))
        .collect();
    let sentence = sentence(since_seconds, furthest, &behind, ranks);
    Some(Hang { since_seconds, limit_seconds, ranks: behind, sentence })
}

fn sentence(since: f64, furthest: Option<Seq>, behind: &[Rank], ranks: &[Progress]) -> String {
    let no_step = format!("No step has completed for {since:.0} s");
    let (Some(furthest), false) = (furthest, behind.is_empty()) else {
        return format!("{no_step}; all ranks have launched the same collectives.");
    };
    let names: Vec<String> = behind.iter().take(8).map(|rank| rank.to_string()).collect();
    let more = if behind.len() > 8 { format!(" and {} more", behind.len() - 8) } else { String::new() };
    let (noun, verb) = if behind.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
    let silent = behind.iter().filter(|rank| ranks[rank.0 as usize].silent_seconds >= 5).count();
    let silence = match (silent, behind.len()) {
        (0, _) => String::new(),
        (_, 1) => ", and nothing has come from it since".into(),
        (silent, all) => format!(", and nothing has come from {silent} of these {all}"),
    };
    format!("{no_step}: {noun} {}{more} {verb} not started collective {furthest}{silence}.", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seq: u64) -> Progress {
        Progress { launched: Some(Seq(seq)), ..Progress::default() }
    }

    #[test]
    fn the_rank_that_has_not_launched_is_named() {
        let ranks = [at(9), at(9), at(7), at(9)];
        assert_eq!(detect(9.9, Some(0.1), &ranks), None);
        assert_eq!(detect(30.0, Some(4.0), &ranks), None, "ten slow steps are not a hang");
        let hang = detect(12.0, Some(0.1), &ranks).unwrap();
        assert_eq!(hang.ranks, [Rank(2)]);
        assert_eq!(hang.sentence, "No step has completed for 12 s: rank 2 has not started collective 9.");
    }

    #[test]
    fn a_rank_that_never_launched_anything_is_behind_too() {
        let hang = detect(12.0, None, &[at(0), Progress::default()]).unwrap();
        assert_eq!(hang.ranks, [Rank(1)]);
        assert!(detect(12.0, None, &[at(3), at(3)]).unwrap().ranks.is_empty());
    }
}
