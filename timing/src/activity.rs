//! Summarizes a device's own records of kernels and copies.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use wire::burst::{Activity, GAP_NANOS, KernelTime, MAX_KERNELS};
use wire::event::SpanKind;

use crate::intervals::{Interval, Intervals};

/// The largest length of a kernel name; longer ones are cut. Template names can have several kilobytes.
const MAX_NAME_BYTES: usize = 512;
/// Parts of the names of collectives' kernels, mangled or not. Each of them waits for other ranks.
const COLLECTIVES: [&str; 21] = [
    // NCCL and RCCL since 2.18, in the symmetric memory of 2.27, and before 2.18.
    "ncclDevKernel",
    "ncclSymk",
    "ncclKernel",
    // PyTorch's symmetric memory: `multimem_`, `one_shot_` and `two_shot_all_reduce_kernel`.
    "all_reduce_kernel",
    "multimem_all_gather_kernel",
    // vLLM, SGLang and aiter, for small messages.
    "cross_device_reduce_",
    // MSCCL, also within RCCL (`MSCCL_KERNEL_ENTRY_NAME` in its `msccl_kernel.h`).
    "mscclKernel_",
    // HCCL of Ascend: `hcom_allReduce__428_0_1` (`COMMUNICATION_OP` in the reference of its profiler).
    "hcom_",
    // oneCCL (its `src/coll/algorithms`). Its copies and local sums have other names: `oneccl_kernel_memcpy`, `oneccl_reduce_average`.
    "oneccl_allreduce_",
    "oneccl_allgather",
    "oneccl_reduce_scatter_",
    "oneccl_alltoall",
    "oneccl_broadcast_",
    "oneccl_send_",
    "oneccl_recv_",
    "oneccl_invoke_barrier",
    // DeepEP (its `csrc/kernels`): `dispatch`, `combine` and what announces them. Its `deep_ep::layout` counts tokens of the rank alone.
    "deep_ep::intranode::",
    "deep_ep::internode::",
    "deep_ep::internode_ll::",
    "7deep_ep9int",
    "7deep_ep12internode_ll",
];

/// One kernel, copy or fill that a device ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<'a> {
    /// The name of the kernel; `None` for a copy or a fill.
    pub kernel: Option<&'a str>,
    /// The device, the context and the number of the stream.
    pub stream: (u32, u32, u32),
    /// The phase in which the work was launched, if known.
    pub phase: Option<SpanKind>,
    /// When the work ran, in nanoseconds of the device's clock.
    pub ran: Interval,
}

/// Returns true if a kernel is a collective of a library that is known by the names of its kernels.
#[must_use]
pub fn is_collective(kernel: &str) -> bool {
    COLLECTIVES.iter().any(|part| kernel.contains(part))
}

/// Parts of names, in small letters and without `_`, that say that a kernel communicates.
const COMMUNICATES: [&str; 8] =
    ["allreduce", "allgather", "reducescatter", "alltoall", "all2all", "sendrecv", "nvshmem", "rocshmem"];

/// Returns true if a kernel that is not a collective ([`is_collective`]) may be one, by its name. A compiler names a kernel after all that
/// it fused, so the kernels of Triton say nothing.
#[must_use]
pub fn may_communicate(kernel: &str) -> bool {
    let name: String =
        kernel.chars().filter(|&letter| letter != '_').map(|letter| letter.to_ascii_lowercase()).collect();
    let is_fused = name.starts_with("triton");
    !is_fused && !is_collective(kernel) && COMMUNICATES.iter().any(|part| name.contains(part))
}

/// Summarizes `work`, in any order, from which `dropped` records are missing. `carried` are collectives that the host
/// carries out instead of a kernel, on the same clock.
#[must_use]
pub fn activity(work: &[Work<'_>], carried: &[Interval], dropped: u64) -> Activity {
    let union = |wanted: &dyn Fn(Option<&str>) -> bool| {
        Intervals::union(work.iter().filter(|work| wanted(work.kernel)).map(|work| work.ran))
    };
    let is_compute = |kernel: &str| !is_collective(kernel);
    let compute = union(&|kernel| kernel.is_some_and(is_compute));
    let computing: HashSet<_> =
        work.iter().filter(|work| work.kernel.is_some_and(is_compute)).map(|work| work.stream).collect();
    // Collectives that the host carries out copy on streams of their own.
    let busy =
        work.iter().filter(|work| computing.contains(&work.stream) && work.kernel.is_none_or(is_compute));
    let busy = Intervals::union(busy.map(|work| work.ran)).with_gaps(GAP_NANOS);
    let nanos = Intervals::total;
    let begin = work.iter().map(|work| work.ran.0).min().unwrap_or(0);
    let end = work.iter().map(|work| work.ran.1).max().unwrap_or(0);
    let kernels_of_collectives =
        work.iter().filter(|work| work.kernel.is_some_and(is_collective)).map(|work| work.ran);
    // It is unknown whether compute ran before the first record or after the last one.
    let seen =
        carried.iter().map(|&(from, to)| (from.max(begin), to.min(end))).filter(|(from, to)| from < to);
    let collectives = Intervals::union(kernels_of_collectives.chain(seen));
    let span_nanos = (end - begin).max(0).unsigned_abs();
    let idle = Intervals::union([(begin, end)]).subtract(&union(&|_| true));
    let gaps = idle.lengths().filter(|&nanos| nanos > GAP_NANOS);
    Activity {
        records: work.len() as u64,
        dropped,
        span_nanos,
        compute_nanos: nanos(&compute),
        collective_nanos: nanos(&collectives),
        hidden_nanos: nanos(&collectives.intersect(&compute)),
        covered_nanos: nanos(&collectives.intersect(&busy)),
        copy_nanos: nanos(&union(&|kernel| kernel.is_none())),
        idle_nanos: nanos(&idle),
        gaps: gaps.clone().count() as u64,
        longest_gap_nanos: gaps.max().unwrap_or(0),
        kernels: kernels(work),
    }
}

/// Returns the kernels with the largest total times, largest first.
fn kernels(work: &[Work<'_>]) -> Vec<KernelTime> {
    let mut times: HashMap<(&str, Option<SpanKind>), (u64, u64, u64)> = HashMap::new();
    for (kernel, (begin, end)) in work.iter().filter_map(|work| Some(((work.kernel?, work.phase), work.ran)))
    {
        let nanos = (end - begin).max(0).unsigned_abs();
        let (calls, total, longest) = times.entry(kernel).or_default();
        (*calls, *total, *longest) = (*calls + 1, *total + nanos, nanos.max(*longest));
    }
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_unstable_by_key(|&((name, phase), (_, total, _))| {
        (Reverse(total), name, phase.map(|phase| phase as u8))
    });
    times.truncate(MAX_KERNELS);
    let kernel =
        |((name, phase), (calls, total_nanos, longest_nanos)): ((&str, Option<SpanKind>), _)| KernelTime {
            phase,
            name: name[..name.floor_char_boundary(MAX_NAME_BYTES)].to_owned(),
            calls,
            total_nanos,
            longest_nanos,
        };
    times.into_iter().map(kernel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_may_communicate_are_no_collectives_of_a_known_library() {
        for (name, collective, may) in [
            ("void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)", true, false),
            ("_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8ELi768EEEvPT_", true, false),
            ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", false, false),
            ("oneccl_allreduce_pcie<sycl::half, Rt64_PCIE>", true, false),
            ("oneccl_kernel_memcpy_typed<float>", false, false),
            ("oneccl_reduce_average<float, 4, 16>", false, false),
            ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", true, false),
            ("hcom_reduceScatter__428_1_1", true, false),
            ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel<2>()", false, true),
            ("nvshmemi_barrier_on_stream_kernel", false, true),
            ("triton_poi_fused_add_all_reduce_4", false, false),
            ("ampere_sgemm_128x64_nn", false, false),
            ("void at::native::reduce_kernel<512, 1>()", false, false),
        ] {
            assert_eq!((is_collective(name), may_communicate(name)), (collective, may), "{name}");
        }
    }

    fn kernel(name: &str, begin: i64, end: i64) -> Work<'_> {
        Work { kernel: Some(name), stream: (0, 1, 7), phase: None, ran: (begin, end) }
    }

    fn copy(stream: u32, begin: i64, end: i64) -> Work<'static> {
        Work { kernel: None, stream: (0, 1, stream), phase: None, ran: (begin, end) }
    }

    #[test]
    fn times_are_unions_and_hidden_time_is_what_compute_covers() {
        let nccl = "_Z41ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
        let work = [kernel("gemm", 0, 60), kernel("gemm", 40, 100), kernel(nccl, 80, 130), copy(7, 150, 160)];
        let found = activity(&work, &[], 3);
        assert_eq!((found.records, found.dropped, found.span_nanos), (4, 3, 160));
        assert_eq!((found.compute_nanos, found.collective_nanos, found.hidden_nanos), (100, 50, 20));
        assert_eq!((found.copy_nanos, found.idle_nanos), (10, 20));
        assert_eq!(found.overlap_ratio(), Some(0.4));
        let gemm =
            KernelTime { name: "gemm".into(), phase: None, calls: 2, total_nanos: 120, longest_nanos: 60 };
        assert_eq!((found.kernels.len(), &found.kernels[0]), (2, &gemm));
    }

    #[test]
    fn a_kernel_of_two_phases_is_listed_for_each() {
        let work_in_phase = |phase, work| Work { phase: Some(phase), ..work };
        let work = [
            work_in_phase(SpanKind::Forward, kernel("gemm", 0, 60)),
            work_in_phase(SpanKind::Backward, kernel("gemm", 60, 180)),
            work_in_phase(SpanKind::Forward, kernel("gemm", 200, 250)),
            kernel("gemm", 300, 301),
        ];
        let kernels = activity(&work, &[], 0).kernels;
        let told: Vec<_> =
            kernels.iter().map(|kernel| (kernel.phase, kernel.calls, kernel.total_nanos)).collect();
        let (forward, backward) = (Some(SpanKind::Forward), Some(SpanKind::Backward));
        assert_eq!(told, [(backward, 1, 120), (forward, 2, 110), (None, 1, 1)]);
    }

    #[test]
    fn a_gap_is_longer_than_the_pause_between_timely_launches() {
        let late = GAP_NANOS as i64 + 1;
        let work = [kernel("a", 0, 10), kernel("b", 1_010, 1_020), kernel("c", 1_020 + late, 1_030 + late)];
        let found = activity(&work, &[], 0);
        assert_eq!((found.idle_nanos, found.gaps), (1_000 + late.unsigned_abs(), 1));
        assert_eq!(found.longest_gap_nanos, late.unsigned_abs());
    }

    #[test]
    fn collectives_of_the_host_count_within_the_recorded_time() {
        let found =
            activity(&[kernel("gemm", 100, 160), kernel("gemm", 180, 200)], &[(0, 110), (150, 190)], 0);
        assert_eq!((found.collective_nanos, found.hidden_nanos), (10 + 40, 10 + 10 + 10));
        assert_eq!((found.compute_nanos, found.idle_nanos), (80, 20), "they take no device time");
    }

    #[test]
    fn copies_and_short_gaps_of_a_computing_stream_cover_collectives() {
        let nccl = Work { stream: (0, 1, 9), ..kernel("ncclDevKernel_AllReduce", 0, 20_000) };
        let work = [
            kernel("gemm", 1_000, 3_000),
            copy(7, 3_500, 4_000),
            kernel("gemm", 8_000, 9_000),
            // This pause is longer than one between timely launches.
            kernel("gemm", 15_000, 16_000),
            // A copy of a collective that the host carries out hides nothing.
            copy(8, 10_000, 14_000),
            nccl,
        ];
        let found = activity(&work, &[], 0);
        assert_eq!((found.hidden_nanos, found.covered_nanos), (4_000, 8_000 + 1_000));
    }

    #[test]
    fn without_records_there_is_no_overlap() {
        let nothing = activity(&[], &[], 0);
        assert_eq!((nothing.span_nanos, nothing.overlap_ratio()), (0, None));
    }

    #[test]
    fn only_the_longest_kernels_are_listed_and_long_names_are_cut() {
        let names: Vec<String> = (0..40).map(|number| format!("{number}{}", "x".repeat(2_000))).collect();
        let work: Vec<Work<'_>> =
            names.iter().zip(1..).map(|(name, length)| kernel(name, 0, length)).collect();
        let kernels = activity(&work, &[], 0).kernels;
        assert_eq!((kernels.len(), kernels[0].total_nanos, kernels[0].name.len()), (MAX_KERNELS, 40, 512));
    }
}
