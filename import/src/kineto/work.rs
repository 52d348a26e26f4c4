//! What a device ran.

use timing::activity::is_collective;
use wire::event::{Function, SpanKind};

/// What some work on a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A kernel that is not a collective.
    Compute,
    /// A collective of a library that is known by the names of its kernels.
    Collective(Function),
    /// A copy from the host to the device.
    CopyToDevice,
    /// Any other copy, or a fill.
    Memory,
    /// A wait of a stream or of the context: no work.
    Wait,
}

impl Kind {
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        if name.starts_with("Memcpy HtoD") {
            Self::CopyToDevice
        } else if ["Memcpy", "Memset", "dma"].iter().any(|prefix| name.starts_with(prefix)) {
            Self::Memory
        } else if is_collective(name) {
            Self::Collective(function(name))
        } else if name.ends_with("Sync") || name.contains("Sync ") {
            Self::Wait
        } else {
            Self::Compute
        }
    }

    /// Returns true for copies and fills.
    #[must_use]
    pub fn is_memory(self) -> bool {
        matches!(self, Self::CopyToDevice | Self::Memory)
    }

    #[must_use]
    pub fn is_collective(self) -> bool {
        matches!(self, Self::Collective(_))
    }
}

/// Returns the function of a collective's kernel, by its name. RCCL, MSCCL and DeepEP have one kernel for several.
fn function(kernel: &str) -> Function {
    const NAMES: [(&str, Function); 12] = [
        ("allreduce", Function::AllReduce),
        ("crossdevicereduce", Function::AllReduce),
        ("allgather", Function::AllGather),
        ("reducescatter", Function::ReduceScatter),
        ("broadcast", Function::Broadcast),
        ("sendrecv", Function::SendReceive),
        ("alltoall", Function::AllToAll),
        ("hcomsend", Function::SendReceive),
        ("hcomreceive", Function::SendReceive),
        ("onecclsend", Function::SendReceive),
        ("onecclrecv", Function::SendReceive),
        ("reduce", Function::Reduce),
    ];
    // Types may say other things.
    let name = kernel.split('<').next().unwrap_or(kernel);
    let name: String =
        name.chars().filter(|&letter| letter != '_').map(|letter| letter.to_ascii_lowercase()).collect();
    NAMES.iter().find(|(part, _)| name.contains(part)).map_or(Function::Other, |&(_, function)| function)
}

/// What a collective carries, as far as the trace says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// What this rank passes to it, in bytes.
    pub bytes: Option<u64>,
    /// The group, as an index of [`super::Trace::groups`].
    pub group: Option<u32>,
    /// The function that the job called. A kernel alone does not tell an all-to-all from messages.
    pub function: Option<Function>,
}

/// A kernel, copy or fill. Times are in nanoseconds on the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What it is.
    pub kind: Kind,
    /// When it began.
    pub begin: i64,
    /// When it ended.
    pub end: i64,
    /// The device's stream.
    pub stream: i64,
    /// The number that it shares with its launch; 0 if there is none.
    pub correlation: u64,
    /// Its name, as an index of [`super::Trace::names`].
    pub name: u32,
    /// What it carries, as an index of [`super::Trace::carried`], if it is a collective.
    pub carried: Option<u32>,
}

/// A call that launches work on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// When the call began, in nanoseconds on the trace's clock.
    pub at: i64,
    /// The number that it shares with the work.
    pub correlation: u64,
    /// The phase that launches it, if the trace shows it.
    pub phase: Option<SpanKind>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_apart_by_its_name() {
        let kernel = |function| Kind::Collective(function);
        for (name, kind) in [
            ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", kernel(Function::SendReceive)),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", kernel(Function::AllReduce)),
            ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", kernel(Function::ReduceScatter)),
            ("ncclDevKernel_Reduce_Sum_f32_RING_LL", kernel(Function::Reduce)),
            (
                "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
                kernel(Function::AllReduce),
            ),
            (
                "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)",
                kernel(Function::AllReduce),
            ),
            ("triton_poi_fused_add_all_reduce_4", Kind::Compute),
            ("hcom_reduceScatter__428_0_1", kernel(Function::ReduceScatter)),
            ("hcom_receive__428_0_1", kernel(Function::SendReceive)),
            ("oneccl_allreduce_pcie<sycl::half, Rt64_PCIE>", kernel(Function::AllReduce)),
            ("oneccl_alltoall_read_aligned<float, 4>", kernel(Function::AllToAll)),
            ("oneccl_kernel_memcpy_typed<float>", Kind::Compute),
            ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", kernel(Function::Other)),
            ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", Kind::Compute),
            (
                "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
                kernel(Function::Other),
            ),
            ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", kernel(Function::Other)),
            ("Memcpy HtoD (Pinned -> Device)", Kind::CopyToDevice),
            ("Memcpy DtoD (Device -> Device)", Kind::Memory),
            ("Memset (Device)", Kind::Memory),
            ("Event Sync", Kind::Wait),
            ("ampere_sgemm_128x64_nn", Kind::Compute),
        ] {
            assert_eq!(Kind::from_name(name), kind, "{name}");
        }
    }
}
