//! The workload of a rank.

use super::DecodeError;
use super::primitive::{Reader, Writer};
use crate::workload::{Precision, Workload};

/// The precisions by their code. Code 0 is for a workload without one.
const PRECISIONS: [Option<Precision>; 6] = {
    let [a, b, c, d, e] = Precision::ALL;
    [None, Some(a), Some(b), Some(c), Some(d), Some(e)]
};

pub(super) fn write(out: &mut Writer, workload: &Workload) {
    out.varint(workload.samples_per_step);
    out.text(&workload.sample_unit);
    out.varint(workload.flops_per_sample);
    out.varint(workload.hardware_flops_per_sample);
    out.u8(workload.precision.map_or(0, |precision| precision as u8));
    out.varint(workload.peak_flops_per_second);
    out.u8(u8::from(workload.is_peak_measured));
}

pub(super) fn read(input: &mut Reader<'_>) -> Result<Workload, DecodeError> {
    Ok(Workload {
        samples_per_step: input.varint("samples per step")?,
        sample_unit: input.text("sample unit")?,
        flops_per_sample: input.varint("operations per sample")?,
        hardware_flops_per_sample: input.varint("operations per sample")?,
        precision: input.tag("precision", &PRECISIONS)?,
        peak_flops_per_second: input.varint("peak")?,
        is_peak_measured: input.tag("origin of the peak", &[false, true])?,
    })
}
