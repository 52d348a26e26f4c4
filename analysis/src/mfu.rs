//! Model FLOPs utilization (MFU) and hardware FLOPs utilization (HFU), as in appendix B of the PaLM paper (Chowdhery et
//! al., 2022): the floating-point operations of the samples per second, as a share of what the devices could execute.

use wire::views::Missing;
use wire::workload::{Precision, Workload};

use crate::rate;
use crate::step::StepAnalysis;

mod peaks;

/// What is known of a rank's workload.
#[derive(Clone, Debug, Default)]
pub struct RankWork {
    /// The workload that the job states.
    pub workload: Workload,
    /// The number of parameters of the model; 0 if it is unknown.
    pub parameters: u64,
    /// The name of the rank's device, as NVML reports it; `None` if it has none or none is known.
    pub device: Option<String>,
}

/// The operations of the samples of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// The operations of one sample, forward and backward: the mean over ranks.
    pub per_sample: f64,
    /// Whether `per_sample` is 6 times the number of parameters, because the job does not state it.
    pub is_from_parameters: bool,
    /// The operations per second over all ranks.
    pub per_second: f64,
}

/// Where the peak of a device is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeakOrigin {
    /// The job states it.
    Stated,
    /// The job measured it.
    Measured,
    /// It is in the table of peaks.
    Device {
        /// The name of the device.
        device: String,
        precision: Precision,
    },
}

/// The peak of a run's devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// The operations per second that the devices of all ranks could execute.
    pub per_second: f64,
    /// Where the peak of rank 0 is from.
    pub origin: PeakOrigin,
}

/// How much of the devices' peak the samples of a run use, or why that is not known.
#[derive(Clone, Debug)]
pub struct Used {
    /// The operations of the samples.
    pub counted: Result<Counted, Missing>,
    /// The operations per second that the devices execute, recomputation included.
    executed_per_second: Result<f64, Missing>,
    peak: Result<Peak, Missing>,
}

impl Used {
    /// Returns the model FLOPs utilization, 0 to 1.
    ///
    /// # Errors
    /// Returns the reason if it is not known.
    pub fn model(&self) -> Result<f64, Missing> {
        let per_second = self.counted.as_ref().map(|counted| counted.per_second);
        share(per_second.map_err(Missing::clone), &self.peak)
    }

    /// Returns the hardware FLOPs utilization, 0 to 1.
    ///
    /// # Errors
    /// Returns the reason if it is not known.
    pub fn hardware(&self) -> Result<f64, Missing> {
        share(self.executed_per_second.clone(), &self.peak)
    }

    /// Returns what the model FLOPs utilization rests on; `None` if it is not known.
    #[must_use]
    pub fn basis(&self) -> Option<(&Counted, &Peak)> {
        let basis = self.counted.as_ref().ok().zip(self.peak.as_ref().ok());
        basis.filter(|_| self.model().is_ok())
    }
}

/// Finds out how much of the devices' peak the samples of `steps` use. `unit` is the unit of a sample.
#[must_use]
pub fn used(ranks: &[Option<RankWork>], unit: &str, steps: &[&StepAnalysis]) -> Used {
    let counted = counted(ranks, unit, steps);
    let executed = counted.as_ref().map_err(Missing::clone);
    let executed_per_second = executed.and_then(|_| executed_per_second(ranks, steps));
    Used { counted, executed_per_second, peak: peak(ranks) }
}

/// Counts the operations of the samples in `steps`. `unit` is the unit of a sample.
///
/// # Errors
/// Returns the reason if they are not known.
fn counted(ranks: &[Option<RankWork>], unit: &str, steps: &[&StepAnalysis]) -> Result<Counted, Missing> {
    let stated = |work: &RankWork| work.workload.flops_per_sample;
    // A token passes every parameter once; an image or a sentence does not.
    let from_parameters =
        |work: &RankWork| if unit == "tokens" { work.parameters.saturating_mul(6) } else { 0 };
    let is_from_parameters = all(ranks, stated).is_none();
    let flops = match is_from_parameters {
        false => all(ranks, stated),
        true => all(ranks, from_parameters),
    };
    let flops = flops.ok_or(Missing::NoFlops)?;
    let per_second = per_second(&flops, steps)?;
    let per_sample = flops.iter().sum::<f64>() / flops.len() as f64;
    Ok(Counted { per_sample, is_from_parameters, per_second })
}

/// Counts the operations that the devices execute in `steps`, recomputation included.
///
/// # Errors
/// Returns the reason if they are not known.
fn executed_per_second(ranks: &[Option<RankWork>], steps: &[&StepAnalysis]) -> Result<f64, Missing> {
    let flops = all(ranks, |work| work.workload.hardware_flops_per_sample);
    per_second(&flops.ok_or(Missing::NoHardwareFlops)?, steps)
}

/// Returns a value of every rank; `None` if it is 0, and so unknown, on any.
fn all(ranks: &[Option<RankWork>], value: impl Fn(&RankWork) -> u64) -> Option<Vec<f64>> {
    let known = |rank: &Option<RankWork>| Some(value(rank.as_ref()?)).filter(|&value| value > 0);
    let values: Vec<f64> = ranks.iter().map_while(|rank| Some(known(rank)? as f64)).collect();
    (!values.is_empty() && values.len() == ranks.len()).then_some(values)
}

fn per_second(flops: &[f64], steps: &[&StepAnalysis]) -> Result<f64, Missing> {
    let rank_flops = |rank: usize, samples: u64| flops.get(rank).map_or(0.0, |flops| flops * samples as f64);
    match steps.len() {
        0 => Err(Missing::NoObservedStep),
        1 => Err(Missing::OneObservedStep),
        _ => rate::per_second(steps, rank_flops).ok_or(Missing::NoSamples),
    }
}

/// Returns the peak of all ranks' devices.
///
/// # Errors
/// Returns the reason if the peak of any rank is not known.
fn peak(ranks: &[Option<RankWork>]) -> Result<Peak, Missing> {
    let peaks: Vec<(f64, PeakOrigin)> = ranks
        .iter()
        .map(|rank| rank.as_ref().map_or(Err(Missing::NoPeak), peak_of))
        .collect::<Result<_, _>>()?;
    let per_second = peaks.iter().map(|(peak, _)| peak).sum();
    let (_, origin) = peaks.into_iter().next().ok_or(Missing::NoPeak)?;
    Ok(Peak { per_second, origin })
}

fn peak_of(rank: &RankWork) -> Result<(f64, PeakOrigin), Missing> {
    let Workload { peak_flops_per_second, precision, is_peak_measured, .. } = rank.workload;
    if peak_flops_per_second > 0 {
        let origin = if is_peak_measured { PeakOrigin::Measured } else { PeakOrigin::Stated };
        return Ok((peak_flops_per_second as f64, origin));
    }
    let device = rank.device.clone().ok_or(Missing::NoPeak)?;
    let precision = precision.ok_or(Missing::NoPrecision)?;
    match peaks::peak(&device, precision) {
        Some(peak) => Ok((peak, PeakOrigin::Device { device, precision })),
        None => Err(Missing::UnknownPeak { device, precision }),
    }
}

/// Returns operations per second as a share of a peak. A share above 1 cannot be: its ingredients are wrong.
///
/// # Errors
/// Returns the reason if the operations or the peak are not known, or do not fit.
fn share(per_second: Result<f64, Missing>, peak: &Result<Peak, Missing>) -> Result<f64, Missing> {
    let ratio = per_second? / peak.as_ref().map_err(Missing::clone)?.per_second;
    let percent = (ratio * 100.0).round() as u64;
    if ratio > 1.0 { Err(Missing::AboveThePeak { percent }) } else { Ok(ratio) }
}

#[cfg(test)]
mod tests {
    use wire::workload::Precision;

    use super::*;

    fn rank(workload: Workload) -> Option<RankWork> {
        Some(RankWork { workload, parameters: 1_000, device: Some("NVIDIA H100 80GB HBM3".into()) })
    }

    fn workload(precision: Precision) -> Workload {
        Workload { precision: Some(precision), ..Workload::default() }
    }

    #[test]
    fn a_stated_peak_comes_before_that_of_the_device() {
        let stated = Workload { peak_flops_per_second: 5, ..workload(Precision::Bf16) };
        let both = peak(&[rank(stated.clone()), rank(workload(Precision::Bf16))]).unwrap();
        assert_eq!(both, Peak { per_second: 989e12 + 5.0, origin: PeakOrigin::Stated });
        let measured = peak(&[rank(Workload { is_peak_measured: true, ..stated })]).unwrap();
        assert_eq!(measured.origin, PeakOrigin::Measured);
    }

    #[test]
    fn an_unknown_peak_is_missing_with_its_reason() {
        let reason = |rank: Option<RankWork>| peak(&[rank]).unwrap_err();
        assert_eq!(reason(None), Missing::NoPeak);
        assert_eq!(reason(rank(Workload::default())), Missing::NoPrecision);
        let other = RankWork { device: Some("NVIDIA X1".into()), ..rank(workload(Precision::Fp8)).unwrap() };
        let unknown = Missing::UnknownPeak { device: "NVIDIA X1".into(), precision: Precision::Fp8 };
        assert_eq!(reason(Some(other)), unknown);
    }

    #[test]
    fn only_tokens_are_counted_from_parameters() {
        let all = |unit: &str| counted(&[rank(Workload::default())], unit, &[]);
        assert_eq!(all("images"), Err(Missing::NoFlops));
        // The operations are known, and the steps are not.
        assert_eq!(all("tokens"), Err(Missing::NoObservedStep));
    }

    #[test]
    fn a_share_of_more_than_everything_is_missing() {
        let peak = Ok(Peak { per_second: 100.0, origin: PeakOrigin::Stated });
        assert_eq!(share(Ok(40.0), &peak), Ok(0.4));
        assert_eq!(share(Ok(152.0), &peak), Err(Missing::AboveThePeak { percent: 152 }));
    }
}
