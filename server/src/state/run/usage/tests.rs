//! Tests of samples over time.

use proptest::prelude::*;
use wire::clock::MonoNanos;
use wire::device::DeviceFigure;
use wire::host::HostFigure;

use super::*;
use crate::state::budget;

const SECOND: i64 = 1_000_000_000;
const MOST: usize = 512 << 10;

/// A host on which the process used `millis` of processor time in a second.
fn host(millis: u64) -> HostSample {
    let figures = HostFigure::ALL.into_iter().map(|figure| (figure, 1_000_000_000)).collect();
    let mut sample = HostSample { at: MonoNanos(0), cores: "0".into(), figures };
    sample.figures.insert(HostFigure::Ran, millis * 1_000_000);
    sample.figures.insert(HostFigure::ResidentBytes, 3 << 30);
    sample
}

fn time(second: i64) -> ServerNanos {
    ServerNanos(second * SECOND)
}

/// A rank that sent a sample in each of `seconds`, with as many milliseconds as the second modulo 1,000.
fn rank(seconds: std::ops::Range<i64>, most: usize) -> RankUsage {
    let mut rank = RankUsage::default();
    for second in seconds {
        rank.add_host(time(second), &host(second as u64 % 1_000), most);
    }
    rank
}

fn value(rank: &RankUsage, window: (i64, i64)) -> f32 {
    rank.history(Usage::ProcessorUse).values().value_within((ServerNanos(window.0), ServerNanos(window.1)))
}

#[test]
fn a_step_has_the_sample_that_covers_its_end_or_the_mean_of_those_within_it() {
    let rank = rank(0..1_000, MOST);
    let half = SECOND / 2;
    assert_eq!(
        value(&rank, (300 * SECOND + half, 300 * SECOND + half + 9)),
        0.301,
        "the second that ends next"
    );
    assert_eq!(value(&rank, (300 * SECOND, 304 * SECOND)), 0.3025, "seconds 301 to 304");
    assert_eq!(value(&rank, (999 * SECOND + 1, 1_000 * SECOND)), 0.999, "the newest");
    assert!(value(&rank, (1_005 * SECOND, 1_006 * SECOND)).is_nan(), "after the last sample");
    assert!(rank.history(Usage::SmClock).values().value_within((time(3), time(4))).is_nan(), "not reported");
}

#[test]
fn a_gap_between_samples_has_no_value() {
    let mut rank = rank(0..100, MOST);
    rank.add_host(time(200), &host(1), MOST);
    assert!(value(&rank, (150 * SECOND, 151 * SECOND)).is_nan());
    assert_eq!(value(&rank, (199 * SECOND, 199 * SECOND + 5)), 0.001);
}

#[test]
fn what_is_older_than_an_hour_is_averaged_over_minutes() {
    let rank = rank(0..10_000, MOST);
    assert_eq!(value(&rank, (9_000 * SECOND + 1, 9_000 * SECOND + 2)), 0.001, "within the hour");
    let minute = value(&rank, (3_300 * SECOND + 1, 3_300 * SECOND + 2));
    assert!((0.24..0.36).contains(&minute), "{minute}: the minute around second 3,300");
    let all = value(&rank, (-1, 10_000 * SECOND));
    assert!((all - 0.4995).abs() < 0.01, "{all}: the mean over the whole run");
}

#[test]
fn a_rank_stays_within_its_share_of_memory_whatever_the_length_of_the_run() {
    for most in [8 << 10, 64 << 10, MOST] {
        // Three weeks, with a sample per second in the first hours and then one every 100 s.
        let mut rank = rank(0..20_000, most);
        let mut largest = rank.bytes();
        for second in (20_000..1_800_000).step_by(100) {
            rank.add_host(time(second), &host(second as u64 % 1_000), most);
            largest = largest.max(rank.bytes());
        }
        assert!(largest <= most, "{largest} bytes of {most}");
        let begun = rank.history(Usage::ProcessorUse).values().points[0].0;
        let is_whole = begun < 1_000_000 * SECOND;
        assert!(is_whole || most < MOST, "with {most} bytes the first value is of {} s", begun / SECOND);
    }
}

/// Returns numbers that look random, below 2^14.
fn noise() -> impl FnMut() -> u64 {
    let mut state = 7_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 50
    }
}

/// A rank whose samples over two days vary in all measures, as real ones do.
fn varying_rank(most: usize) -> RankUsage {
    let (mut rank, mut noise) = (RankUsage::default(), noise());
    for second in 0..180_000 {
        let mut host = host(900);
        for figure in HostFigure::ALL.into_iter().skip(2) {
            host.figures.insert(figure, 500_000_000 + noise() * 1_000);
        }
        let figures = DeviceFigure::ALL.into_iter().map(|figure| (figure, 500 + noise() % 500)).collect();
        let device = DeviceSample { at: MonoNanos(0), device: "a GPU".into(), figures };
        rank.add_host(time(second), &host, most);
        rank.add_device(time(second), &device, most);
    }
    rank
}

#[test]
fn a_thousand_ranks_keep_all_measures_at_the_full_rate() {
    let share = budget::USAGE_BYTES / 1_024;
    let (rank, unlimited) = (varying_rank(share), varying_rank(usize::MAX));
    let points = |rank: &RankUsage, usage| rank.history(usage).values().points.len();
    assert_eq!(rank.recent().count(), Usage::ALL.len());
    for usage in Usage::ALL {
        assert_eq!(points(&rank, usage), points(&unlimited, usage), "{usage:?}: {} bytes", unlimited.bytes());
    }
    assert!(rank.bytes() <= share, "{} of {share} bytes", rank.bytes());
}

#[test]
fn the_last_minute_is_summarized_over_ranks() {
    let using = |used: [u64; 2]| {
        let mut rank = rank(0..700, MOST);
        (700..800).for_each(|second| rank.add_host(time(second), &host(used[second as usize % 2]), MOST));
        rank
    };
    let ranks = [using([400, 600]), using([100, 100]), using([900, 900]), using([0, 200])];
    let recent = recent(ranks.iter().enumerate().map(|(at, rank)| (at as u32, rank)));
    let used = recent.iter().find(|summary| summary.usage == Usage::ProcessorUse).unwrap();
    assert_eq!((used.ranks, used.median, used.low, used.high), (4, 0.1, (0.1, 1), (0.9, 2)));
    assert_eq!(used.most, 0.9);
    assert!(recent.iter().all(|summary| !summary.usage.is_of_device()), "no rank has a device");
}

proptest! {
    /// Whatever the times and gaps, a packed series has the values of an unpacked one.
    #[test]
    fn packed_values_are_those_that_came(samples in prop::collection::vec((1_i64..5_000, 0_u64..1_000), 1..400)) {
        let (mut rank, mut now, mut expected) = (RankUsage::default(), 0, Vec::new());
        for (millis, used) in samples {
            now += millis * 1_000_000;
            rank.add_host(ServerNanos(now), &host(used), usize::MAX);
            expected.push((now, Usage::ProcessorUse.host_value(&host(used)).unwrap()));
        }
        let values = rank.history(Usage::ProcessorUse).values();
        prop_assert_eq!(values.points, expected);
    }
}
