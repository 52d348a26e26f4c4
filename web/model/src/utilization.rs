//! How the devices and the hosts of a job are used, in sentences, and which measures are shown.

use viz::measure::write;
use wire::device::{DeviceFigure, DeviceSample, throttle};
use wire::event::SpanKind;
use wire::live::Part;
use wire::live::tile::{Measure, Tile};
use wire::usage::Usage;
use wire::views::{RankDevice, RankLedger, RecentUsage, Report};

/// The largest number of ranks that a sentence names.
const MAX_NAMED: usize = 10;

/// The measures that answer whether devices and hosts are busy, and what keeps them from it.
const MAIN: [Usage; 16] = [
    Usage::DeviceBusy,
    Usage::SmActivity,
    Usage::TensorActivity,
    Usage::SmClock,
    Usage::DeviceThrottled,
    Usage::Power,
    Usage::DeviceMemory,
    Usage::ProcessorUse,
    Usage::OtherProcesses,
    Usage::RunQueueWait,
    Usage::ProcessorThrottled,
    Usage::HostMemory,
    Usage::NetworkTraffic,
    Usage::RdmaTraffic,
    Usage::MemoryPressure,
    Usage::IoPressure,
];
/// The difference between ranks from which one is named, as a share of the median.
const DIFFERS: f32 = 0.1;

/// The measures that some rank reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// Those that are shown at once.
    pub main: Vec<Usage>,
    /// Those that are shown on request.
    pub more: Vec<Usage>,
    /// Those that were 0 on all ranks since the run began.
    pub zero: Vec<Usage>,
}

impl Measures {
    /// Sorts the reported measures.
    #[must_use]
    pub fn new(recent: &[RecentUsage]) -> Self {
        let mut measures = Self::default();
        for RecentUsage { usage, most, .. } in recent {
            let list = match MAIN.contains(usage) {
                _ if *most <= 0.0 => &mut measures.zero,
                true => &mut measures.main,
                false => &mut measures.more,
            };
            list.push(*usage);
        }
        measures
    }
}

/// Formats a value of a measure with its unit.
#[must_use]
pub fn written(usage: Usage, value: f32) -> String {
    write(Measure::Usage(usage), value)
}

/// Says what a measure is over the steps of a tile's first column: the median over ranks, and the smallest and the largest
/// value with their ranks. `None` if no sample lies in these steps.
#[must_use]
pub fn spread(usage: Usage, tile: &Tile) -> Option<String> {
    let column = tile.values.iter().take(tile.rows as usize).zip(0_u32..);
    let mut values: Vec<(f32, u32)> =
        column.filter(|(value, _)| !value.is_nan()).map(|(value, row)| (*value, row)).collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let median = written(usage, values.get(values.len().saturating_sub(1) / 2)?.0);
    let ends = [values.first()?, values.last()?];
    if values.len() == 1 {
        return Some(median);
    }
    if ends.iter().all(|(value, _)| written(usage, *value) == median) {
        return Some(format!("{median} on all ranks"));
    }
    let named = |(value, row): &(f32, u32)| {
        let (first, last) = (tile.rank + row * tile.per_row, tile.rank + (row + 1) * tile.per_row - 1);
        let ranks = if first == last { format!("rank {first}") } else { format!("ranks {first} to {last}") };
        format!("{} ({ranks})", written(usage, *value))
    };
    let [low, high] = ends.map(named);
    Some(format!("median {median}, from {low} to {high}"))
}

/// Says how busy the devices, or else the processors, were in the last minute, and what a step consists of. `None` if
/// neither is known.
#[must_use]
pub fn answer(recent: &[RecentUsage], report: &Report) -> Option<String> {
    let known = |usage| recent.iter().find(|found| found.usage == usage);
    let parts = [busy(&known), step(report)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join(". ")))
}

/// Says how busy the devices are, or the processors if no device is reported.
fn busy<'a>(known: &impl Fn(Usage) -> Option<&'a RecentUsage>) -> Option<String> {
    let low = |now: &RecentUsage| {
        let (least, rank) = now.low;
        let is_low = least < now.median * (1.0 - DIFFERS);
        is_low.then(|| format!(", rank {rank} only {}", written(now.usage, least)))
    };
    if let Some(device) = known(Usage::DeviceBusy) {
        let active = known(Usage::SmActivity).map(|active| {
            format!("; their multiprocessors had work for {} of it", written(active.usage, active.median))
        });
        let busy = written(device.usage, device.median);
        let rest = low(device).or_else(|| known(Usage::SmActivity).and_then(low)).unwrap_or_default();
        return Some(format!(
            "In the last minute, the devices ran kernels for {busy} of the time{}{rest}",
            active.unwrap_or_default()
        ));
    }
    let processor = known(Usage::ProcessorUse)?;
    let busy = written(processor.usage, processor.median);
    Some(format!("In the last minute, a rank kept {busy} busy{}", low(processor).unwrap_or_default()))
}

/// Says which share of a step is compute, and what most of the rest is.
fn step(report: &Report) -> Option<String> {
    let whole: u64 = report.ledger.iter().map(|rank| rank.step_nanos).sum();
    let sum = |part: Part| report.ledger.iter().map(|rank| rank.parts()[part as usize]).sum::<u64>();
    let share = |part: Part| sum(part) as f64 / whole as f64;
    let compute = [Part::Forward, Part::Backward, Part::Optimizer];
    let computing: f64 = compute.map(share).into_iter().sum();
    let others = Part::ALL.into_iter().filter(|part| !compute.contains(part));
    let most = others.max_by(|a, b| share(*a).total_cmp(&share(*b)))?;
    (whole > 0).then(|| {
        let head = format!("A step is {} compute", units::percent(computing));
        match share(most) {
            rest if rest < 0.01 => head,
            rest => format!("{head}; most of the rest is {} ({})", most.name(), units::percent(rest)),
        }
    })
}

/// Says in which share of each phase the training threads ran on a processor: the median over ranks, and the rank that did
/// so least if it differs. Phases of less than a hundredth of the step are left out. `None` if it was not measured.
#[must_use]
pub fn processor_shares(ledger: &[RankLedger]) -> Option<String> {
    let whole: u64 = ledger.iter().map(|rank| rank.step_nanos).sum();
    let parts = [Part::Input, Part::H2d, Part::Forward, Part::Backward, Part::Optimizer];
    let said = |(phase, part): (SpanKind, Part)| {
        let nanos: u64 = ledger.iter().map(|rank| rank.parts()[part as usize]).sum();
        let shares = ledger.iter().filter_map(|rank| Some((rank.processor_share(phase)?, rank.rank.0)));
        let mut shares: Vec<(f64, u32)> = shares.collect();
        shares.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (&(least, rank), &(median, _)) = (shares.first()?, shares.get((shares.len() - 1) / 2)?);
        let is_low = least < median * f64::from(1.0 - DIFFERS);
        let rest = is_low.then(|| format!(" (rank {rank} only {})", units::percent(least)));
        let text = format!("{} of {}{}", units::percent(median), phase.name(), rest.unwrap_or_default());
        (nanos * 100 >= whole).then_some(text)
    };
    let phases: Vec<String> = SpanKind::PHASES.into_iter().zip(parts).filter_map(said).collect();
    let measured = ledger.iter().any(|rank| rank.processor_nanos.is_some());
    (measured && !phases.is_empty())
        .then(|| format!("The training thread of a rank ran on a processor for {}.", phases.join(", ")))
}

/// Says how many of `ranks` ranks report a device, and which devices are throttled, have errors, or are short of
/// memory.
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
    let parts = [Some(throttled(devices)), Some(with_errors(devices)), short_of_memory(devices)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{head}; {}.", parts.join("; "))
}

/// Says where PyTorch's allocator emptied its cache most often because a request did not fit into the memory; `None` if it
/// did not. The request that follows usually succeeds, so this is not an out-of-memory error.
fn short_of_memory(devices: &[RankDevice]) -> Option<String> {
    let times = |device: &RankDevice| device.sample.get(DeviceFigure::AllocationRetries).unwrap_or(0);
    let most = devices.iter().filter(|device| times(device) > 0).max_by_key(|device| times(device))?;
    let others = devices.iter().filter(|device| times(device) > 0).count() - 1;
    let most_affected = match times(most) {
        1 => format!("rank {} was short of memory and emptied PyTorch's cache once", most.rank.0),
        more => {
            format!(
                "rank {} was short of memory and emptied PyTorch's cache {} times",
                most.rank.0,
                units::count(more)
            )
        }
    };
    Some(match others {
        0 => most_affected,
        1 => format!("{most_affected}, and 1 other rank did so too"),
        more => format!("{most_affected}, and {more} other ranks did so too"),
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
            let most_affected =
                format!("rank {} is throttled by {}{runs}", device.rank.0, reasons.join(", "));
            match others.len() {
                0 => most_affected,
                1 => format!("{most_affected}, and 1 other rank is throttled"),
                more => format!("{most_affected}, and {more} other ranks are throttled"),
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
        let known = |figure| sample.get(figure);
        let (xid, ecc) = (known(DeviceFigure::XidErrors), known(DeviceFigure::EccUncorrectedErrors));
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

    fn now(usage: Usage, median: f32, low: (f32, u32)) -> RecentUsage {
        RecentUsage { usage, ranks: 4, median, low, high: (median, 0), most: median }
    }

    #[test]
    fn measures_that_were_never_above_zero_are_only_listed() {
        let mut idle = now(Usage::IoPressure, 0.0, (0.0, 0));
        let used = |usage| now(usage, 0.9, (0.9, 0));
        let measures =
            Measures::new(&[used(Usage::ProcessorUse), used(Usage::ContextSwitches), idle.clone()]);
        assert_eq!(measures.main, [Usage::ProcessorUse]);
        assert_eq!((measures.more, measures.zero), (vec![Usage::ContextSwitches], vec![Usage::IoPressure]));
        // It was under pressure once, and is shown from then on.
        idle.most = 0.2;
        assert_eq!(Measures::new(&[idle]).main, [Usage::IoPressure]);
    }

    #[test]
    fn the_spread_names_the_ranks_that_differ_most() {
        let tile = |values: &[f32]| Tile {
            step: 0,
            per_column: 64,
            rank: 0,
            per_row: 1,
            rows: values.len() as u32,
            values: values.into(),
        };
        let said = |values: &[f32]| spread(Usage::DeviceBusy, &tile(values));
        let named = "median 80.0 %, from 10.0 % (rank 2) to 90.0 % (rank 0)";
        assert_eq!(said(&[0.9, 0.8, 0.1, f32::NAN]).as_deref(), Some(named));
        assert_eq!(said(&[0.9, 0.9]).as_deref(), Some("90.0 % on all ranks"));
        assert_eq!(said(&[0.9]).as_deref(), Some("90.0 %"));
        assert_eq!(said(&[f32::NAN; 2]), None);
        let pooled = Tile { per_row: 8, rank: 16, ..tile(&[0.9, 0.8, 0.1]) };
        assert!(spread(Usage::DeviceBusy, &pooled).unwrap().contains("10.0 % (ranks 32 to 39)"));
    }

    #[test]
    fn a_rank_whose_thread_is_often_off_the_processor_is_named_by_phase() {
        let rank = |rank: u32, forward: u64| RankLedger {
            rank: Rank(rank),
            input_nanos: 5,
            forward_nanos: 400,
            backward_nanos: 595,
            step_nanos: 1_000,
            processor_nanos: Some([5, 0, forward, 595, 0]),
            ..RankLedger::default()
        };
        let said = |ledger: Vec<RankLedger>| processor_shares(&ledger);
        let text = "The training thread of a rank ran on a processor for 100 % of forward (rank 1 only 50.0 %), \
                    100 % of backward.";
        assert_eq!(said(vec![rank(0, 400), rank(1, 200), rank(2, 400)]).as_deref(), Some(text));
        assert_eq!(said(vec![RankLedger { processor_nanos: None, ..rank(0, 400) }]), None);
    }

    #[test]
    fn the_answer_is_of_devices_if_there_are_any_and_names_a_rank_that_is_less_busy() {
        let said = |now: &[RecentUsage]| busy(&|usage| now.iter().find(|found| found.usage == usage));
        let processor = now(Usage::ProcessorUse, 0.5, (0.49, 1));
        assert_eq!(
            said(std::slice::from_ref(&processor)).as_deref(),
            Some("In the last minute, a rank kept 0.500 cores busy")
        );
        let (device, active) =
            (now(Usage::DeviceBusy, 1.0, (0.4, 3)), now(Usage::SmActivity, 0.856, (0.8, 1)));
        assert_eq!(
            said(&[device, active, processor]).as_deref(),
            Some(
                "In the last minute, the devices ran kernels for 100 % of the time; their multiprocessors had work for \
                 85.6 % of it, rank 3 only 40.0 %"
            )
        );
        assert_eq!(said(&[]), None);
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
    fn the_rank_that_was_short_of_memory_most_often_is_named() {
        let retrying = |rank, retries| device(rank, &[(DeviceFigure::AllocationRetries, retries)]);
        let found = |devices: &[RankDevice]| sentence(devices, 3);
        assert!(found(&[retrying(0, 0), retrying(1, 12), retrying(2, 3)]).ends_with(
            "; rank 1 was short of memory and emptied PyTorch's cache 12 times, and 1 other rank did so too."
        ));
        assert!(
            found(&[retrying(0, 1), retrying(1, 0)])
                .ends_with("; rank 0 was short of memory and emptied PyTorch's cache once.")
        );
        assert!(!found(&[retrying(0, 0)]).contains("memory"));
    }

    #[test]
    fn many_ranks_are_counted_and_not_listed() {
        assert_eq!(named(&[0, 1, 2]), "0, 1, 2");
        assert_eq!(named(&(0..1_024).collect::<Vec<_>>()), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1,014 more");
    }
}
