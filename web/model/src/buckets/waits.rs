//! Who waits for whom in one collective.

use units::nanos;
use wire::live::Waterfall;

/// A wait shorter than this share of the step is not worth an arrow.
const SHORTEST: f64 = 0.002;

/// Below this multiple of the mean, the longest wait is like the others.
const ALIKE: f64 = 1.05;

/// The collective of one bucket: who starts last, and who waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    pub bucket: u32,
    /// The row that starts last.
    pub last: usize,
    /// When it starts, in nanoseconds since the step's origin.
    pub last_start_nanos: f64,
    /// The rows that wait for it, and for how long in nanoseconds, longest first.
    pub waiting: Vec<(usize, f64)>,
}

/// Returns who waits for whom in `bucket`; `None` if fewer than two ranks have it, or if the records do not say when it ran.
#[must_use]
pub fn waits(waterfall: &Waterfall, bucket: u32) -> Option<Waits> {
    let at: Vec<usize> = (0..waterfall.bucket.len()).filter(|&at| waterfall.bucket[at] == bucket).collect();
    let start = |at: &usize| waterfall.bucket_start[*at];
    let last = at.iter().copied().max_by(|a, b| start(a).total_cmp(&start(b)))?;
    if at.len() < 2 || waterfall.only_enqueued {
        return None;
    }
    let shortest = waterfall.span_nanos * SHORTEST;
    let mut waiting: Vec<(usize, f64)> = at
        .iter()
        .filter(|&&at| at != last)
        .map(|&at| (waterfall.bucket_row[at] as usize, waterfall.bucket_wait[at]))
        .filter(|(_, wait)| *wait > shortest)
        .collect();
    waiting.sort_by(|a, b| b.1.total_cmp(&a.1));
    Some(Waits { bucket, last: waterfall.bucket_row[last] as usize, last_start_nanos: start(&last), waiting })
}

/// Returns the bucket for which the ranks wait longest in all; `None` if no rank waits.
#[must_use]
pub fn worst_bucket(waterfall: &Waterfall) -> Option<u32> {
    let mut buckets = waterfall.bucket.clone();
    buckets.sort_unstable();
    buckets.dedup();
    let total = |bucket: u32| -> f64 {
        waits(waterfall, bucket).map_or(0.0, |waits| waits.waiting.iter().map(|(_, wait)| wait).sum())
    };
    let worst = buckets.into_iter().map(|bucket| (bucket, total(bucket)));
    worst.filter(|(_, total)| *total > 0.0).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(bucket, _)| bucket)
}

/// Says who waits for whom.
#[must_use]
pub fn sentence(waterfall: &Waterfall, waits: &Waits) -> String {
    let Waits { bucket, last, waiting, .. } = waits;
    let rank = |row: usize| waterfall.rank[row];
    let Some(&(most, longest)) = waiting.first() else {
        return format!("No rank waits for bucket {bucket}: all ranks start it together.");
    };
    let last = rank(*last);
    if waiting.len() == 1 {
        return format!(
            "Rank {last} starts bucket {bucket} last. Rank {} waits {} for it.",
            rank(most),
            nanos(longest)
        );
    }
    let mean = waiting.iter().map(|(_, wait)| wait).sum::<f64>() / waiting.len() as f64;
    let waiting = units::ranks(waiting.len() as u32);
    let longest_wait = if longest < mean * ALIKE {
        String::new()
    } else {
        format!(", rank {} longest with {}", rank(most), nanos(longest))
    };
    format!(
        "Rank {last} starts bucket {bucket} last. {waiting} wait for it, {} on average{longest_wait}.",
        nanos(mean)
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::started_at;
    use super::*;

    #[test]
    fn a_step_whose_collectives_were_only_enqueued_has_no_waits() {
        let waterfall = Waterfall { only_enqueued: true, ..started_at(&[10.0, 40.0, 20.0]) };
        assert_eq!((waits(&waterfall, 4), worst_bucket(&waterfall)), (None, None));
    }

    #[test]
    fn the_others_wait_for_the_last_to_start() {
        let waterfall = started_at(&[10.0, 40.0, 20.0]);
        let found = waits(&waterfall, 4).expect("a bucket of three ranks");
        assert_eq!((found.last, &found.waiting), (1, &vec![(0, 30.0), (2, 20.0)]));
        assert_eq!(
            sentence(&waterfall, &found),
            "Rank 1 starts bucket 4 last. 2 ranks wait for it, 25.0 ns on average, rank 0 longest with 30.0 ns."
        );
        assert_eq!(worst_bucket(&waterfall), Some(4));
    }

    #[test]
    fn one_waiting_rank_has_a_shorter_sentence() {
        let waterfall = started_at(&[10.0, 40.0]);
        let found = waits(&waterfall, 4).expect("a bucket of two ranks");
        assert_eq!(sentence(&waterfall, &found), "Rank 1 starts bucket 4 last. Rank 0 waits 30.0 ns for it.");
    }

    #[test]
    fn equal_waits_have_no_longest() {
        let waterfall = started_at(&[10.0, 40.0, 10.0]);
        let found = waits(&waterfall, 4).expect("a bucket of three ranks");
        assert_eq!(
            sentence(&waterfall, &found),
            "Rank 1 starts bucket 4 last. 2 ranks wait for it, 30.0 ns on average."
        );
    }

    #[test]
    fn ranks_that_start_together_do_not_wait() {
        let waterfall = started_at(&[40.0, 40.0]);
        let found = waits(&waterfall, 4).expect("a bucket of two ranks");
        assert_eq!(sentence(&waterfall, &found), "No rank waits for bucket 4: all ranks start it together.");
        assert_eq!(worst_bucket(&waterfall), None);
        assert_eq!(waits(&waterfall, 9), None, "an unknown bucket");
        assert_eq!(waits(&started_at(&[40.0]), 4), None, "a rank alone waits for none");
    }
}
