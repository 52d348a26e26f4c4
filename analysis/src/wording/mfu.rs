//! On what the model FLOPs utilization rests.

use crate::mfu::{Counted, Peak, PeakOrigin};

/// Says how the operations of the samples were counted, and which peak they are compared with.
pub(crate) fn basis(counted: &Counted, peak: &Peak, unit: &str, ranks: u32) -> String {
    let singular = unit.strip_suffix('s').unwrap_or(unit);
    let per_sample = units::rate(counted.per_sample, "FLOP");
    let how = match counted.is_from_parameters {
        true => {
            format!(
                "{per_sample} per {singular} (6 times the number of parameters: attention is not counted)"
            )
        }
        false => format!("{per_sample} per {singular}, as the job states"),
    };
    let per_rank = units::rate(peak.per_second / f64::from(ranks.max(1)), "FLOP/s");
    let peak = match &peak.origin {
        PeakOrigin::Stated => format!("{per_rank} per rank, as the job states"),
        PeakOrigin::Measured => {
            format!("{per_rank} per rank, as the job measured with a matrix multiplication")
        }
        PeakOrigin::Device { device, precision } => {
            format!("{per_rank} per rank, the dense peak of {device} in {}", precision.name())
        }
    };
    format!("{how}; peak {peak}")
}
