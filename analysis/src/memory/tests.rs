//! Memory that grows, levels off, or belongs to another process.

use std::collections::BTreeMap;

use super::*;
use crate::wording::memory::time_left;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// One sample per second, of a process that uses `used` and leaves 8 GiB.
fn host(seconds: u64, used: impl Fn(u64) -> u64) -> Levels {
    sharing(seconds, used, |_| 0)
}

/// The same, of a process that shares a part of it with files.
fn sharing(seconds: u64, used: impl Fn(u64) -> u64, shared: impl Fn(u64) -> u64) -> Levels {
    let mut history = Levels::default();
    for second in 0..seconds {
        let figures = BTreeMap::from([
            (HostFigure::ResidentBytes, used(second)),
            (HostFigure::SharedBytes, shared(second)),
            (HostFigure::MemoryAvailableBytes, 8 * GIB),
            (HostFigure::ProcessAge, second * 1_000_000_000),
        ]);
        history.add_host(&HostSample {
            at: MonoNanos(second as i64 * 1_000_000_000),
            cores: "0".into(),
            figures,
        });
    }
    history
}

fn grown(hosts: Vec<Levels>) -> Vec<MemoryGrowth> {
    let ranks = hosts.len() as u32;
    let placement = [HostRanks { host: "a".into(), ranks: (0, ranks - 1) }];
    let hosts: Vec<Option<&Levels>> = hosts.iter().map(Some).collect();
    growth(&Memory { ranks, hosts: &hosts, devices: &[], placement: &placement })
}

/// 1 GiB and a start of ten seconds, and then `per_second` bytes more per second, with what a collector leaves for some seconds.
fn leaks(per_second: u64) -> impl Fn(u64) -> u64 {
    move |second| GIB.min(second * GIB / 10) + per_second * second + (second % 5) * MIB
}

#[test]
fn memory_that_grows_is_named_with_its_rate_and_the_time_left() {
    for seconds in [60, 600, 40_000] {
        let found = grown(vec![
            host(seconds, leaks(4 * MIB)),
            host(seconds, leaks(0)),
            host(seconds, leaks(4 * MIB)),
        ]);
        let [growth] = &found[..] else { panic!("{seconds}: {found:#?}") };
        assert_eq!((&growth.ranks[..], growth.kind, growth.is_urgent), (&[0, 2][..], MemoryKind::Host, true));
        assert!((growth.bytes_per_second / (4 * MIB) as f64 - 1.0).abs() < 0.1, "{growth:?}");
        // Two ranks fill 8 GiB together.
        let left = growth.time_left.value().unwrap();
        assert!(left.soonest_seconds <= 1_024.0 && left.latest_seconds >= 1_023.0, "{left:?}");
        assert!(left.latest_seconds < 1.3 * left.soonest_seconds, "{left:?}");
        let begin = "The memory of ranks 0 and 2 grows all along, by 4.";
        assert!(growth.sentence.starts_with(begin), "{}", growth.sentence);
        assert!(
            growth.sentence.contains("is full in about 17 min")
                || growth.sentence.contains("is full in 16 to 18 min"),
            "{}",
            growth.sentence
        );
    }
}

#[test]
fn memory_that_levels_off_or_hardly_grows_is_not_named() {
    assert_eq!(grown(vec![host(300, leaks(0))]), []);
    assert_eq!(grown(vec![host(300, leaks(MIB / 10))]), [], "3 % in 300 s is what allocators keep");
    let fills = |second: u64| (2.0 * GIB as f64 * (1.0 - (-(second as f64) / 40.0).exp())) as u64;
    assert_eq!(grown(vec![host(300, fills)]), []);
    let steps = |second: u64| if second > 150 { 2 * GIB } else { GIB };
    assert_eq!(grown(vec![host(300, steps)]), []);
    assert_eq!(grown(vec![host(20, leaks(50 * MIB))]), [], "too short");
}

#[test]
fn memory_that_hardly_grows_after_the_start_is_not_named() {
    let fills = |second: u64| 38 * MIB + second.min(8) * 20 * MIB + 18_000 * second;
    assert_eq!(grown(vec![host(27, fills)]), []);
}

#[test]
fn a_time_that_is_hardly_known_has_no_end() {
    let time = |soonest_seconds, latest_seconds| time_left(&TimeLeft { soonest_seconds, latest_seconds });
    assert_eq!(time(1_920.0, 1.2e6), "in 32 min at the earliest");
    assert_eq!(time(480.0, 540.0), "in 8 to 9 min");
    assert_eq!(time(480.0, 481.0), "in about 8 min");
}

#[test]
fn what_a_young_process_takes_is_not_said_to_go_on_for_hours() {
    let grows = |seconds| grown(vec![host(seconds, leaks(MIB))]);
    assert_eq!(grows(60), [], "8 GiB would be full in more than two hours");
    assert_eq!(grows(300).len(), 1);
}

#[test]
fn slow_growth_with_much_memory_left_is_no_warning() {
    let found = grown(vec![host(3_000, leaks(MIB / 20))]);
    let [growth] = &found[..] else { panic!("{found:#?}") };
    assert!(!growth.is_urgent && growth.sentence.ends_with("is full in 45 to 46 hours."), "{growth:?}");
}

#[test]
fn a_mapped_file_that_is_read_piece_by_piece_is_no_memory_that_grows() {
    let (grows, file) = (leaks(4 * MIB), |second| 4 * MIB * second);
    assert_eq!(grown(vec![sharing(300, &grows, file)]), []);
    assert_eq!(grown(vec![sharing(300, &grows, |_| 100 * MIB)]).len(), 1);
}

#[test]
fn the_memory_of_another_process_counts_from_its_start() {
    let restarted = |second: u64| leaks(4 * MIB)(second % 400);
    let mut history = Levels::default();
    for second in 0..460 {
        let age = second % 400 * 1_000_000_000;
        let figures =
            BTreeMap::from([(HostFigure::ResidentBytes, restarted(second)), (HostFigure::ProcessAge, age)]);
        history.add_host(&HostSample {
            at: MonoNanos(second as i64 * 1_000_000_000),
            cores: String::new(),
            figures,
        });
    }
    let found = grown(vec![history]);
    let [growth] = &found[..] else { panic!("{found:#?}") };
    assert!(growth.over_seconds < 60.0, "{growth:?}");
    assert_eq!(growth.left_bytes.reason(), Some(&Missing::NoMemoryLimit));
    assert!(
        growth.sentence.contains("When it is full is not known, because the records do not say"),
        "{growth:?}"
    );
}

#[test]
fn a_device_can_use_what_its_allocator_holds() {
    let mut levels = Levels::default();
    for second in 0..100 {
        let figures = BTreeMap::from([
            (DeviceFigure::MemoryTotalBytes, 80 * GIB),
            (DeviceFigure::MemoryUsedBytes, 40 * GIB),
            (DeviceFigure::AllocatedBytes, 10 * GIB + second * 64 * MIB),
            (DeviceFigure::ReservedBytes, 30 * GIB),
        ]);
        levels.add_device(&DeviceSample {
            at: MonoNanos(second as i64 * 1_000_000_000),
            device: String::new(),
            figures,
        });
    }
    let devices = [Some(Arc::new(levels))];
    let found = growth(&Memory { ranks: 1, hosts: &[], devices: &devices, placement: &[] });
    let [growth] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(growth.kind, MemoryKind::Device);
    assert_eq!(growth.left_bytes.value(), Some(40 * GIB + 20 * GIB - 99 * 64 * MIB));
}
