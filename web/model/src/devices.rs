//! What the devices of a job say in one sentence.

use wire::device::{DeviceFigure, DeviceSample, throttle};
use wire::views::RankDevice;

/// The largest number of ranks that a sentence names.
const MAX_NAMED: usize = 10;

/// Says how many of `ranks` ranks report a device, and which devices are throttled, have errors, or ran out of memory.
#[must_use]
pub fn sentence(devices: &[RankDevice], ranks: u32) -> String {
    let reporting = devices.len() as u64;
    let head = if ranks == 1 && reporting == 1 {
        "The only rank reports a device".into()
    } else if reporting >= u64::from(ranks) {
        format!("All {} report a device", units::ranks(reporting as u32))
    } else {
        format!("{} of {} report a device", units::count(reporting), units::ranks(ranks))
    };
    let parts = [Some(throttled(devices)), Some(with_errors(devices)), out_of_memory(devices)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{head}; {}.", parts.join("; "))
}

/// Says where PyTorch's allocator ran out of memory most often; `None` if it did not.
fn out_of_memory(devices: &[RankDevice]) -> Option<String> {
    let times = |device: &RankDevice| device.sample.get(DeviceFigure::AllocationRetries).unwrap_or(0);
    let most = devices.iter().filter(|device| times(device) > 0).max_by_key(|device| times(device))?;
    let others = devices.iter().filter(|device| times(device) > 0).count() - 1;
    let this = match times(most) {
        1 => format!("rank {} ran out of memory once", most.rank.0),
        more => format!("rank {} ran out of memory {} times", most.rank.0, units::count(more)),
    };
    Some(match others {
        0 => this,
        1 => format!("{this}, and 1 other rank did so too"),
        more => format!("{this}, and {more} other ranks did so too"),
    })
}

fn throttled(devices: &[RankDevice]) -> String {
    let reasons = |device: &RankDevice| device.sample.get(DeviceFigure::ThrottleReasons).map(throttle::names);
    if devices.iter().all(|device| reasons(device).is_none()) {
        return "whether clocks are lowered is not reported".into();
    }
    let mut found: Vec<(&RankDevice, Vec<&str>)> = devices
        .iter()
        .filter_map(|device| Some((device, reasons(device)?)))
        .filter(|(_, reasons)| !reasons.is_empty())
        .collect();
    let clock = |sample: &DeviceSample| sample.get(DeviceFigure::SmClockMegahertz).unwrap_or(u64::MAX);
    found.sort_by_key(|(device, _)| clock(&device.sample));
    match found.as_slice() {
        [] => "none is throttled".into(),
        [(device, reasons), others @ ..] => {
            let runs =
                speed(&device.sample).map_or_else(String::new, |speed| format!(" and runs at {speed}"));
            let this = format!("rank {} is throttled by {}{runs}", device.rank.0, reasons.join(", "));
            match others.len() {
                0 => this,
                1 => format!("{this}, and 1 other rank is throttled"),
                more => format!("{this}, and {more} other ranks are throttled"),
            }
        }
    }
}

fn speed(sample: &DeviceSample) -> Option<String> {
    let now = sample.get(DeviceFigure::SmClockMegahertz)?;
    let most = sample.get(DeviceFigure::SmClockMostMegahertz);
    Some(match most {
        Some(most) => format!("{} of {} MHz", units::count(now), units::count(most)),
        None => format!("{} MHz", units::count(now)),
    })
}

fn with_errors(devices: &[RankDevice]) -> String {
    let errors = |sample: &DeviceSample| {
        let of = |figure| sample.get(figure);
        let (xid, ecc) = (of(DeviceFigure::XidErrors), of(DeviceFigure::EccUncorrectedErrors));
        xid.or(ecc).map(|_| xid.unwrap_or(0) + ecc.unwrap_or(0))
    };
    if devices.iter().all(|device| errors(&device.sample).is_none()) {
        return "errors are not reported".into();
    }
    let broken: Vec<u32> = devices
        .iter()
        .filter(|device| errors(&device.sample).is_some_and(|count| count > 0))
        .map(|device| device.rank.0)
        .collect();
    match broken.len() {
        0 => "none has errors".into(),
        1 => format!("rank {} has errors", broken[0]),
        _ => format!("ranks {} have errors", named(&broken)),
    }
}

/// Lists ranks: `0, 1, 2`, or the first ten of them and the number of the others.
#[must_use]
pub fn named(ranks: &[u32]) -> String {
    let names: Vec<String> = ranks.iter().take(MAX_NAMED).map(u32::to_string).collect();
    let names = names.join(", ");
    match ranks.len().saturating_sub(MAX_NAMED) {
        0 => names,
        more => format!("{names} and {} more", units::count(more as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::clock::MonoNanos;
    use wire::ids::Rank;

    fn device(rank: u32, figures: &[(DeviceFigure, u64)]) -> RankDevice {
        let figures = figures.iter().copied().collect();
        RankDevice {
            rank: Rank(rank),
            sample: DeviceSample { at: MonoNanos(0), device: "H100".into(), figures },
        }
    }

    fn clocked(rank: u32, reasons: u64, megahertz: u64) -> RankDevice {
        device(
            rank,
            &[
                (DeviceFigure::ThrottleReasons, reasons),
                (DeviceFigure::SmClockMegahertz, megahertz),
                (DeviceFigure::SmClockMostMegahertz, 1_980),
                (DeviceFigure::XidErrors, 0),
            ],
        )
    }

    #[test]
    fn healthy_devices_have_a_short_sentence() {
        let devices = [clocked(0, 0, 1_980), clocked(1, 0, 1_980)];
        assert_eq!(sentence(&devices, 2), "All 2 ranks report a device; none is throttled; none has errors.");
    }

    #[test]
    fn the_slowest_throttled_device_is_named() {
        let devices = [clocked(0, throttle::THERMAL, 1_500), clocked(1, throttle::THERMAL, 1_350)];
        assert_eq!(
            sentence(&devices, 4),
            "2 of 4 ranks report a device; rank 1 is throttled by temperature and runs at 1,350 of 1,980 MHz, and 1 \
             other rank is throttled; none has errors."
        );
    }

    #[test]
    fn what_is_not_reported_is_not_called_healthy() {
        assert_eq!(
            sentence(&[device(0, &[])], 1),
            "The only rank reports a device; whether clocks are lowered is not reported; errors are not reported."
        );
        let broken = [device(0, &[(DeviceFigure::EccUncorrectedErrors, 2)])];
        assert!(sentence(&broken, 8).ends_with("rank 0 has errors."));
    }

    #[test]
    fn the_rank_that_ran_out_of_memory_most_often_is_named() {
        let of = |rank, retries| device(rank, &[(DeviceFigure::AllocationRetries, retries)]);
        let found = |devices: &[RankDevice]| sentence(devices, 3);
        assert!(
            found(&[of(0, 0), of(1, 12), of(2, 3)])
                .ends_with("; rank 1 ran out of memory 12 times, and 1 other rank did so too.")
        );
        assert!(found(&[of(0, 1), of(1, 0)]).ends_with("; rank 0 ran out of memory once."));
        assert!(!found(&[of(0, 0)]).contains("memory"));
    }

    #[test]
    fn many_ranks_are_counted_and_not_listed() {
        assert_eq!(named(&[0, 1, 2]), "0, 1, 2");
        assert_eq!(named(&(0..1_024).collect::<Vec<_>>()), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1,014 more");
    }
}
