//! The order of ranks, and what differs between some ranks and the others.

use std::collections::BTreeMap;

use analysis::stats;
use wire::device::{DeviceFigure, throttle};
use wire::live::Part;
use wire::live::tile::Measure;
use wire::views::{HostRanks, RankDevice, RankLedger, Report};

/// The number of ranks in [`Order::Worst`].
pub const WORST: usize = 20;
/// The largest number of ranks that are put into an order of their own. More ranks stay in rank order.
const MAX_LISTED: usize = 256;

/// The largest number of ranks whose rows are all high enough to be seen.
const MAX_SEEN: usize = 64;

/// The order of the rows of the heatmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The [`WORST`] ranks, worst first.
    Worst,
    /// All ranks, host by host.
    Host,
    /// All ranks in rank order.
    All,
}

impl Order {
    /// All orders, as offered.
    pub const ALL: [Self; 3] = [Self::Worst, Self::Host, Self::All];

    /// Returns the order for a run of `ranks` ranks if the user has chosen none: all rows while they are high enough to
    /// be seen.
    #[must_use]
    pub fn usual(ranks: usize) -> Self {
        if ranks > MAX_SEEN { Self::Worst } else { Self::All }
    }

    /// Returns the name on the page.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Worst => "Worst 20",
            Self::Host => "By host",
            Self::All => "All",
        }
    }

    /// Returns the name in the address.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Worst => "worst",
            Self::Host => "host",
            Self::All => "all",
        }
    }

    /// Returns the order with this name in the address.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.key() == key)
    }
}

/// What a figure is on one rank, as the mean over the observed steps.
#[derive(Clone, Debug, PartialEq)]
pub struct RankCost {
    pub rank: u32,
    /// Its host; empty if the rank has not named it.
    pub host: String,
    /// The figure, in nanoseconds per step.
    pub nanos: f64,
    /// The figure less that of the median rank.
    pub excess_nanos: f64,
}

/// Returns the figure of every rank, the largest first.
#[must_use]
pub fn costs(report: &Report, measure: Measure) -> Vec<RankCost> {
    let steps = report.steps.max(1) as f64;
    let values: Vec<f64> = report.ledger.iter().map(|ledger| figure(ledger, measure) / steps).collect();
    let cost = |(ledger, &nanos): (&RankLedger, &f64)| RankCost {
        rank: ledger.rank.0,
        host: host_of(&report.hosts, ledger.rank.0).unwrap_or_default().to_owned(),
        nanos,
        excess_nanos: 0.0,
    };
    let mut costs: Vec<RankCost> = report.ledger.iter().zip(&values).map(cost).collect();
    let median = stats::lower_median(values.iter().copied()).unwrap_or(0.0);
    costs.iter_mut().for_each(|cost| cost.excess_nanos = cost.nanos - median);
    costs.sort_by(|a, b| b.nanos.total_cmp(&a.nanos).then(a.rank.cmp(&b.rank)));
    costs
}

/// Returns a figure of a rank, summed over the observed steps. Lateness has no sum, and local work stands for it.
fn figure(ledger: &RankLedger, measure: Measure) -> f64 {
    match measure {
        Measure::StepTime => ledger.step_nanos as f64,
        Measure::LocalWork | Measure::Lateness => ledger.own_nanos() as f64,
        Measure::Part(part) => ledger.parts()[part as usize] as f64,
        // How a device or host is used is not part of a step.
        Measure::Usage(_) => f64::NAN,
    }
}

#[must_use]
pub fn host_of(hosts: &[HostRanks], rank: u32) -> Option<&str> {
    hosts.iter().find(|host| (host.ranks.0..=host.ranks.1).contains(&rank)).map(|host| host.host.as_str())
}

/// What a figure is on the ranks of one group: those of a host, or those with the same kind of device.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCost {
    /// The host or the device; empty for ranks that have not named theirs.
    pub name: String,
    /// The number of ranks.
    pub ranks: usize,
    /// The mean over these ranks, in nanoseconds per step.
    pub nanos: f64,
    /// The mean less the figure of the median rank of all.
    pub excess_nanos: f64,
    /// The rank with the largest figure.
    pub worst: u32,
}

/// Returns the figure of every host, the largest first.
#[must_use]
pub fn host_costs(costs: &[RankCost]) -> Vec<GroupCost> {
    grouped(costs, |cost| cost.host.as_str())
}

/// Returns the figure of every kind of device ([`device_kind`]), the largest first.
#[must_use]
pub fn device_kind_costs(costs: &[RankCost], devices: &[RankDevice]) -> Vec<GroupCost> {
    let kinds: BTreeMap<u32, String> =
        devices.iter().map(|device| (device.rank.0, device_kind(device))).collect();
    grouped(costs, |cost| kinds.get(&cost.rank).map_or("", String::as_str))
}

fn grouped<'a>(costs: &'a [RankCost], name: impl Fn(&'a RankCost) -> &'a str) -> Vec<GroupCost> {
    let mut order: Vec<&RankCost> = costs.iter().collect();
    order.sort_by(|a, b| name(a).cmp(name(b)).then(b.nanos.total_cmp(&a.nanos)));
    let mut groups: Vec<GroupCost> = order
        .chunk_by(|a, b| name(a) == name(b))
        .map(|ranks| {
            let mean = |read: fn(&RankCost) -> f64| {
                ranks.iter().map(|cost| read(cost)).sum::<f64>() / ranks.len() as f64
            };
            GroupCost {
                name: name(ranks[0]).to_owned(),
                ranks: ranks.len(),
                nanos: mean(|cost| cost.nanos),
                excess_nanos: mean(|cost| cost.excess_nanos),
                worst: ranks[0].rank,
            }
        })
        .collect();
    groups.sort_by(|a, b| b.nanos.total_cmp(&a.nanos));
    groups
}

/// Returns the ranks in an order of their own; `None` for rank order.
#[must_use]
pub fn listed(order: Order, costs: &[RankCost]) -> Option<Vec<u32>> {
    match order {
        Order::Worst if costs.len() > WORST => Some(costs.iter().take(WORST).map(|cost| cost.rank).collect()),
        Order::Worst if !costs.is_empty() => Some(costs.iter().map(|cost| cost.rank).collect()),
        Order::Host if costs.len() <= MAX_LISTED && !costs.is_empty() => {
            let mut ranks: Vec<(&str, u32)> =
                costs.iter().map(|cost| (cost.host.as_str(), cost.rank)).collect();
            ranks.sort_unstable();
            Some(ranks.into_iter().map(|(_, rank)| rank).collect())
        }
        Order::Worst | Order::Host | Order::All => None,
    }
}

/// How a part of the step, a bucket, a host or a device differs between some ranks and the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The part, the bucket, the host or the device.
    pub name: String,
    /// The mean over the selected ranks: nanoseconds per step, or the share of these ranks on the host.
    pub selected: f64,
    /// The same of the other ranks.
    pub others: f64,
}

/// Returns the parts of the step that differ, the largest difference first, in nanoseconds per step.
#[must_use]
pub fn parts_that_differ(report: &Report, selected: &[u32]) -> Vec<Difference> {
    let steps = report.steps.max(1) as f64;
    let (chosen, others): (Vec<&RankLedger>, Vec<&RankLedger>) =
        report.ledger.iter().partition(|ledger| selected.contains(&ledger.rank.0));
    if chosen.is_empty() || others.is_empty() {
        return Vec::new();
    }
    let mean = |ledgers: &[&RankLedger], part: Part| {
        ledgers.iter().map(|ledger| ledger.parts()[part as usize] as f64).sum::<f64>()
            / ledgers.len() as f64
            / steps
    };
    let mut found: Vec<Difference> = Part::ALL
        .into_iter()
        .map(|part| Difference {
            name: part.name().into(),
            selected: mean(&chosen, part),
            others: mean(&others, part),
        })
        .collect();
    found.sort_by(|a, b| (b.selected - b.others).abs().total_cmp(&(a.selected - a.others).abs()));
    found
}

/// Returns the hosts on which selected ranks run, as shares of the selected and of the other ranks.
#[must_use]
pub fn hosts_that_differ(report: &Report, selected: &[u32]) -> Vec<Difference> {
    let all = f64::from(report.ranks);
    let others = all - selected.len() as f64;
    let mut names: Vec<&str> = selected.iter().filter_map(|&rank| host_of(&report.hosts, rank)).collect();
    names.sort_unstable();
    names.dedup();
    let on_host = |name: &str| {
        let ranks = report.hosts.iter().filter(|host| host.host == name);
        ranks.map(|host| f64::from(host.ranks.1 - host.ranks.0 + 1)).sum::<f64>()
    };
    names
        .into_iter()
        .map(|name| {
            let here =
                selected.iter().filter(|&&rank| host_of(&report.hosts, rank) == Some(name)).count() as f64;
            Difference {
                name: name.into(),
                selected: here / selected.len().max(1) as f64,
                others: if others > 0.0 { (on_host(name) - here) / others } else { 0.0 },
            }
        })
        .collect()
}

/// Returns the kind of a rank's device: its model, and why it is throttled. Devices that differ in one of them may
/// differ in speed.
#[must_use]
pub fn device_kind(device: &RankDevice) -> String {
    // The name is followed by the address on the PCI bus, which every device has for itself.
    let model = device.sample.device.split(" at ").next().unwrap_or_default();
    match device.sample.get(DeviceFigure::ThrottleReasons).map(throttle::names).unwrap_or_default().as_slice()
    {
        [] => model.to_owned(),
        reasons => format!("{model}, throttled by {}", reasons.join(", ")),
    }
}

/// Returns the models of devices on which selected ranks run, as shares of the selected and of the other ranks that
/// report a device. If their device throttles, that is a model of its own.
#[must_use]
pub fn devices_that_differ(devices: &[RankDevice], selected: &[u32]) -> Vec<Difference> {
    let (chosen, others): (Vec<&RankDevice>, Vec<&RankDevice>) =
        devices.iter().partition(|device| selected.contains(&device.rank.0));
    let share = |devices: &[&RankDevice], wanted: &str| {
        devices.iter().filter(|device| device_kind(device) == wanted).count() as f64
            / devices.len().max(1) as f64
    };
    let mut names: Vec<String> = chosen.iter().map(|device| device_kind(device)).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|name| Difference { selected: share(&chosen, &name), others: share(&others, &name), name })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::clock::MonoNanos;
    use wire::device::DeviceSample;
    use wire::ids::Rank;

    fn cost(rank: u32, host: &str, nanos: f64) -> RankCost {
        RankCost { rank, host: host.into(), nanos, excess_nanos: 0.0 }
    }

    #[test]
    fn the_worst_ranks_come_first_and_hosts_stay_together() {
        let costs: Vec<RankCost> =
            (0..30).map(|at| cost(at, ["b", "a"][at as usize % 2], 30.0 - f64::from(at))).collect();
        assert_eq!(listed(Order::Worst, &costs).unwrap(), (0..20).collect::<Vec<u32>>());
        let by_host = listed(Order::Host, &costs).unwrap();
        assert_eq!((by_host[0], by_host[14], by_host[15]), (1, 29, 0));
        assert_eq!(listed(Order::All, &costs), None);
        assert_eq!(listed(Order::Worst, &[]), None);
    }

    #[test]
    fn many_ranks_begin_with_the_worst() {
        assert_eq!(
            [1, 64, 65, 1_024].map(Order::usual),
            [Order::All, Order::All, Order::Worst, Order::Worst]
        );
    }

    #[test]
    fn hosts_are_ordered_by_the_mean_of_their_ranks() {
        let costs = [cost(3, "b", 9.0), cost(0, "a", 5.0), cost(1, "a", 7.0), cost(2, "b", 1.0)];
        let hosts = host_costs(&costs);
        let shown: Vec<_> = hosts.iter().map(|h| (h.name.as_str(), h.ranks, h.nanos, h.worst)).collect();
        assert_eq!(shown, [("a", 2, 6.0, 1), ("b", 2, 5.0, 3)]);
        assert_eq!(host_costs(&[]), []);
    }

    #[test]
    fn a_throttled_device_differs_from_the_others_of_its_model() {
        let device = |rank: u32, reasons: u64| {
            let figures = [(DeviceFigure::ThrottleReasons, reasons)].into();
            let device = format!("H100 at 0000:0{rank}:00.0");
            RankDevice { rank: Rank(rank), sample: DeviceSample { at: MonoNanos(0), device, figures } }
        };
        let devices = [device(0, 0), device(1, throttle::THERMAL), device(2, 0)];
        let found = devices_that_differ(&devices, &[1]);
        assert_eq!((found.len(), found[0].selected, found[0].others), (1, 1.0, 0.0));
        assert!(found[0].name.starts_with("H100, throttled by "), "{}", found[0].name);
        assert_eq!(devices_that_differ(&devices, &[0])[0].others, 0.5);
        let costs = [cost(0, "", 2.0), cost(1, "", 9.0), cost(2, "", 4.0), cost(3, "", 1.0)];
        let kinds = device_kind_costs(&costs, &devices);
        assert_eq!(
            (kinds[0].worst, kinds[0].ranks, kinds[1].name.as_str(), kinds[1].worst),
            (1, 1, "H100", 2)
        );
        assert_eq!((kinds[2].name.as_str(), kinds[2].worst), ("", 3), "rank 3 reports no device");
    }

    #[test]
    fn hosts_are_found_by_their_ranges() {
        let hosts =
            [HostRanks { host: "a".into(), ranks: (0, 3) }, HostRanks { host: "b".into(), ranks: (4, 7) }];
        assert_eq!([3, 4, 8].map(|rank| host_of(&hosts, rank)), [Some("a"), Some("b"), None]);
    }
}
