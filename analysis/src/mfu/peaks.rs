//! The peaks of devices: how many floating-point operations per second their matrix units can execute.
//!
//! The values are for dense matrices, inputs of the precision and sums in 32 bits, at the boost clock: datasheets also
//! print twice as much for sparse matrices. BF16 and FP16 are from the tables of PyTorch Lightning (V100, T4, A100) and
//! torchtitan (H100 and later), and from NVIDIA's datasheet of the L40S. The other columns are NVIDIA's published figures
//! as commonly cited; they were not compared with each datasheet, and the name of the GB300 was not seen on a device.
//!
//! A device is found by the whole name that NVML reports. A part of the name would confuse H20 with H200, L4 with L40S
//! and A10 with A100, and a default would be wrong for every device that is not here.

use wire::workload::Precision;

/// TFLOP/s of devices by precision. 0 if the devices do not have the precision.
struct Peak {
    names: &'static [&'static str],
    fp32: f64,
    tf32: f64,
    fp16: f64,
    bf16: f64,
    fp8: f64,
}

impl Peak {
    const fn new(names: &'static [&'static str], [fp32, tf32, fp16, bf16, fp8]: [f64; 5]) -> Self {
        Self { names, fp32, tf32, fp16, bf16, fp8 }
    }
}

const PEAKS: [Peak; 19] = [
    Peak::new(&["Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"], [15.7, 0.0, 125.0, 0.0, 0.0]),
    Peak::new(&["Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"], [14.0, 0.0, 112.0, 0.0, 0.0]),
    Peak::new(&["Tesla V100S-PCIE-32GB"], [16.4, 0.0, 130.0, 0.0, 0.0]),
    Peak::new(&["Tesla T4"], [8.1, 0.0, 65.0, 0.0, 0.0]),
    Peak::new(
        &["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe"],
        [19.5, 156.0, 312.0, 312.0, 0.0],
    ),
    Peak::new(&["NVIDIA A10"], [31.2, 62.5, 125.0, 125.0, 0.0]),
    Peak::new(&["NVIDIA A10G"], [35.0, 35.0, 70.0, 70.0, 0.0]),
    Peak::new(&["NVIDIA L4"], [30.3, 60.0, 121.0, 121.0, 242.0]),
    Peak::new(&["NVIDIA L40S"], [91.6, 183.0, 362.0, 362.0, 733.0]),
    Peak::new(
        &["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GH200 480GB"],
        [67.0, 495.0, 989.0, 989.0, 1_979.0],
    ),
    Peak::new(&["NVIDIA H100 PCIe"], [51.0, 378.0, 756.0, 756.0, 1_513.0]),
    Peak::new(&["NVIDIA H100 NVL"], [60.0, 418.0, 835.0, 835.0, 1_671.0]),
    Peak::new(&["NVIDIA H20"], [44.0, 74.0, 148.0, 148.0, 296.0]),
    Peak::new(&["NVIDIA B200"], [75.0, 1_125.0, 2_250.0, 2_250.0, 4_500.0]),
    Peak::new(&["NVIDIA B300 SXM6 AC"], [75.0, 1_125.0, 2_250.0, 2_250.0, 4_500.0]),
    Peak::new(&["NVIDIA GB200"], [80.0, 1_250.0, 2_500.0, 2_500.0, 5_000.0]),
    Peak::new(&["NVIDIA GB300"], [80.0, 1_250.0, 2_500.0, 2_500.0, 5_000.0]),
    Peak::new(&["NVIDIA GeForce RTX 4090"], [82.6, 82.6, 165.0, 165.0, 330.0]),
    Peak::new(&["NVIDIA GeForce RTX 5090"], [104.8, 104.8, 209.5, 209.5, 419.0]),
];

/// Returns the peak of a device in floating-point operations per second; `None` if the device is not known, or does not
/// have the precision.
#[must_use]
pub fn peak(device: &str, precision: Precision) -> Option<f64> {
    let peak = PEAKS.iter().find(|peak| peak.names.contains(&device))?;
    let teraflops = match precision {
        Precision::Fp32 => peak.fp32,
        Precision::Tf32 => peak.tf32,
        Precision::Fp16 => peak.fp16,
        Precision::Bf16 => peak.bf16,
        Precision::Fp8 => peak.fp8,
    };
    (teraflops > 0.0).then_some(teraflops * 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_whole_name_alone() {
        let bf16 = |device| peak(device, Precision::Bf16);
        assert_eq!(bf16("NVIDIA H100 80GB HBM3"), Some(989e12));
        assert_eq!(bf16("NVIDIA H20"), Some(148e12));
        assert_eq!(bf16("NVIDIA L40S"), Some(362e12));
        assert_eq!([bf16("NVIDIA L40"), bf16("NVIDIA H100"), bf16("")], [None; 3]);
        assert_eq!(bf16("Tesla V100-SXM2-16GB"), None, "a V100 has no BF16");
    }

    #[test]
    fn no_precision_is_faster_than_one_of_fewer_bits() {
        for peak in &PEAKS {
            let known: Vec<f64> =
                [peak.fp32, peak.tf32, peak.fp16, peak.fp8].into_iter().filter(|&peak| peak > 0.0).collect();
            assert!(known.is_sorted(), "{:?}", peak.names);
        }
    }

    #[test]
    fn each_name_occurs_once() {
        let mut names: Vec<&str> = PEAKS.iter().flat_map(|peak| peak.names).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
