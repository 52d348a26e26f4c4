//! The figures that can be limited, and the limits.

use std::str::FromStr;

use wire::live::Part;
use wire::views::comparison::Unit;
use wire::views::{Missing, Report};

/// A figure that can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limited {
    StepTime,
    StepTimeP99,
    Exposed,
    Input,
    Tail,
    CommunicationFraction,
    Throughput,
    Overlap,
    Efficiency,
    Mfu,
    Goodput,
}

impl Limited {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::StepTime => "step time, median",
            Self::StepTimeP99 => "step time, p99",
            Self::Exposed => "exposed wait and transfer",
            Self::Input => "input",
            Self::Tail => "tail",
            Self::CommunicationFraction => "communication fraction",
            Self::Throughput => "throughput",
            Self::Overlap => "overlap",
            Self::Efficiency => "efficiency, implied",
            Self::Mfu => "MFU",
            Self::Goodput => "goodput",
        }
    }

    /// Returns the figure's value in `report`, or the reason why it is missing.
    pub(super) fn value(self, report: &Report) -> Result<f64, Missing> {
        let part = |parts: &[Part]| report.mean_nanos(parts).ok_or(Missing::NoObservedStep);
        let spread = || report.step_time_nanos.as_result();
        let value = match self {
            Self::StepTime => return spread().map(|spread| spread.median).map_err(Missing::clone),
            Self::StepTimeP99 => return spread().map(|spread| spread.p99).map_err(Missing::clone),
            Self::Exposed => return part(&[Part::ExposedWait, Part::ExposedTransfer]),
            Self::Input => return part(&[Part::Input, Part::H2d]),
            Self::Tail => &report.tail_nanos,
            Self::CommunicationFraction => &report.communication_fraction,
            Self::Throughput => &report.throughput,
            Self::Overlap => &report.overlap_ratio,
            Self::Efficiency => &report.scaling_efficiency.implied,
            Self::Mfu => &report.flops_utilization.model,
            Self::Goodput => {
                let goodput = report.goodput.as_result();
                return goodput.map(|goodput| goodput.ratio).map_err(Missing::clone);
            }
        };
        value.as_result().copied().map_err(Missing::clone)
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::StepTime | Self::StepTimeP99 | Self::Exposed | Self::Input | Self::Tail => Unit::Nanos,
            Self::Throughput => Unit::PerSecond,
            Self::CommunicationFraction | Self::Overlap | Self::Efficiency | Self::Mfu | Self::Goodput => {
                Unit::Ratio
            }
        }
    }

    /// Returns true if the limit is a maximum, because larger is worse.
    pub(super) fn is_maximum(self) -> bool {
        !matches!(self, Self::Throughput | Self::Overlap | Self::Efficiency | Self::Mfu | Self::Goodput)
    }
}

/// A limit, relative to the baseline or absolute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// A change by a share of the baseline.
    Relative(f64),
    /// A change of a share, in points. 1 is 100 points.
    Points(f64),
    /// A change in nanoseconds.
    MoreNanos(f64),
    /// A value in nanoseconds.
    Nanos(f64),
    /// A value without a unit.
    Plain(f64),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let at = text.find(|c: char| c.is_alphabetic() || c == '%').unwrap_or(text.len());
        // 1e3 is a number, not 1 with the unit e3.
        let (number, unit) = match text.parse::<f64>() {
            Ok(number) => (Some(number), ""),
            Err(_) => (text[..at].trim().parse().ok(), text[at..].trim()),
        };
        let number = number.filter(|number| number.is_finite());
        let is_change = text.starts_with(['+', '-']);
        let nanos = match unit {
            "ns" => Some(1.0),
            // The first spelling is easy to type. The second one is what reports print.
            "us" | "µs" => Some(1e3),
            "ms" => Some(1e6),
            "s" => Some(1e9),
            _ => None,
        };
        match (number, unit, nanos, is_change) {
            (Some(number), "%", _, _) => Ok(Self::Relative(number / 100.0)),
            (Some(number), "pt", _, _) => Ok(Self::Points(number / 100.0)),
            (Some(number), _, Some(nanos), true) => Ok(Self::MoreNanos(number * nanos)),
            (Some(number), _, Some(nanos), false) => Ok(Self::Nanos(number * nanos)),
            (Some(number), "", _, false) => Ok(Self::Plain(number)),
            _ => Err("must be a change (+3%, -2%, +2pt, +5ms) or a value (60ms, 850us, 0.7)".into()),
        }
    }
}

impl Limit {
    /// Returns the limit of `figure` as a value, for this value of the baseline.
    ///
    /// # Errors
    /// Returns an error if the limit's unit does not fit the figure.
    pub(super) fn bound(self, baseline: f64, figure: Limited) -> anyhow::Result<f64> {
        let name = figure.name();
        match (self, figure.unit()) {
            (Self::Relative(share), _) => Ok(baseline * (1.0 + share)),
            (Self::Points(points), Unit::Ratio) => Ok(baseline + points),
            (Self::MoreNanos(nanos), Unit::Nanos) => Ok(baseline + nanos),
            (Self::Nanos(nanos), Unit::Nanos) => Ok(nanos),
            (Self::Plain(value), Unit::Ratio | Unit::PerSecond) => Ok(value),
            (_, Unit::Nanos) => anyhow::bail!("{name} is a time: give a limit such as +3%, +5ms or 60ms"),
            (_, Unit::Ratio) => anyhow::bail!("{name} is a share: give a limit such as +3%, +2pt or 0.7"),
            (_, Unit::PerSecond) => {
                anyhow::bail!("{name} is a rate: give a limit such as -3%, or a number of samples per second")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_change_or_a_value() {
        let parsed = |text: &str| text.parse::<Limit>();
        assert_eq!(parsed("+3%"), Ok(Limit::Relative(0.03)));
        assert_eq!(parsed("-2 %"), Ok(Limit::Relative(-0.02)));
        assert_eq!(parsed("+2pt"), Ok(Limit::Points(0.02)));
        assert_eq!(parsed("+5ms"), Ok(Limit::MoreNanos(5e6)));
        assert_eq!([parsed("850us"), parsed("850 µs")], [Ok(Limit::Nanos(850e3)), Ok(Limit::Nanos(850e3))]);
        assert_eq!(parsed("0.7"), Ok(Limit::Plain(0.7)));
        assert_eq!(parsed("1e3"), Ok(Limit::Plain(1e3)));
        for wrong in ["", "fast", "+", "3 parsecs", "inf", "+3"] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_limit_of_the_wrong_kind_is_refused() {
        assert_eq!(Limit::Relative(0.03).bound(100.0, Limited::StepTime).unwrap(), 103.0);
        assert_eq!(Limit::Points(-0.02).bound(0.5, Limited::Overlap).unwrap(), 0.48);
        assert!(Limit::Points(0.02).bound(100.0, Limited::StepTime).is_err());
        assert!(Limit::Nanos(5.0).bound(0.5, Limited::Overlap).is_err());
        assert!(Limit::Plain(60.0).bound(100.0, Limited::StepTime).is_err());
    }
}
