//! The peak of a CPU, as the products of matrices show it.

use std::time::{Duration, Instant};

use agent::{Precision as Counted, Workload};
use candle_core::{DType, Device, Result, Tensor};

use crate::precision::Precision;

/// The number of rows and columns of the matrices: large enough that a product reaches the peak, and small enough that
/// several fit into the measurement.
const ROWS: usize = 512;
/// The duration of the measurement. All ranks measure at the same time, so ranks that share cores share their peak.
const DURATION: Duration = Duration::from_millis(200);

/// Returns the workload of a job whose samples take `flops_per_sample`. The peak of a GPU is known by its name; that of a
/// CPU is measured.
///
/// # Errors
/// Returns an error if the device fails.
pub fn workload(flops_per_sample: u64, precision: Precision, device: &Device) -> Result<Workload> {
    let peak = if device.is_cpu() { Some(measure(precision, device)?) } else { None };
    Ok(Workload {
        flops_per_sample,
        // Nothing is computed again.
        hardware_flops_per_sample: flops_per_sample,
        precision: Some(match precision {
            Precision::Fp32 => Counted::Fp32,
            Precision::Bf16 => Counted::Bf16,
            Precision::Fp16 => Counted::Fp16,
        }),
        peak_flops_per_second: peak.unwrap_or(0),
        is_peak_measured: peak.is_some(),
        ..Workload::default()
    })
}

/// Returns the floating-point operations per second of the fastest product.
fn measure(precision: Precision, device: &Device) -> Result<u64> {
    let matrix = Tensor::ones((ROWS, ROWS), DType::F32, device)?;
    let began = Instant::now();
    let mut fastest = Duration::MAX;
    while began.elapsed() < DURATION {
        let started = Instant::now();
        precision.matmul(&matrix, &matrix)?;
        fastest = fastest.min(started.elapsed());
    }
    let operations = 2 * ROWS.pow(3);
    Ok((operations as f64 / fastest.as_secs_f64()) as u64)
}
