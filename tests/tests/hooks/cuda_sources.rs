//! Tests of assumptions about NVIDIA's software, against the headers of several releases of NCCL and NVTX and the
//! assembler for several generations of GPUs.

use anyhow::Context as _;
use gpu::device::KERNELS;
use gpu::nccl::communicator;
use testkit::headers::{self, Headers};
use testkit::{fetch, nvidia};

/// The definitions that nccl.h needs from CUDA's headers.
const CUDA_RUNTIME: &str = "
#pragma once
#include <stddef.h>
#include <stdint.h>
#define CUDART_VERSION 13000
typedef struct CUstream_st *cudaStream_t;
";

#[test]
fn nccl_has_the_assumed_layout_and_codes() -> anyhow::Result<()> {
    for (package, release) in [("nvidia-nccl-cu12", "2.20.5"), ("nvidia-nccl-cu13", "2.28.9")] {
        let Some(wheel) = nvidia::wheel(package, release)? else { return Ok(()) };
        let besides = [
            ("cuda_runtime.h", CUDA_RUNTIME),
            ("cuda_fp16.h", ""),
            ("cuda_bf16.h", "#define __CUDA_BF16_TYPES_EXIST__ 1"),
        ];
        let folders = vec![wheel.join("nvidia/nccl/include")];
        let nccl = Headers { include: &["nccl.h"], folders, besides: &besides };
        let assumed = [communicator::assumptions(), attach::hooks::calls::assumptions()].concat();
        nccl.hold(&format!("NCCL {release}"), &assumed)?;
    }
    Ok(())
}

#[test]
fn nvtx_has_the_assumed_layout_and_numbers() -> anyhow::Result<()> {
    for (package, release) in
        [("nvidia-nvtx-cu12", "12.1.105"), ("nvidia-nvtx-cu12", "12.8.90"), ("nvidia-nvtx", "13.0.85")]
    {
        let Some(wheel) = nvidia::wheel(package, release)? else { return Ok(()) };
        let folders = vec![headers::folder_of(&wheel, "nvtx3/nvToolsExt.h")?];
        let nvtx = Headers { include: &["nvtx3/nvToolsExt.h"], folders, besides: &[] };
        nvtx.hold(&format!("NVTX of CUDA {release}"), &attach::hooks::nvtx::assumptions())?;
    }
    Ok(())
}

#[test]
fn kernels_assemble_for_every_gpu_generation_of_cuda_12() -> anyhow::Result<()> {
    let Some(wheel) = nvidia::wheel("nvidia-cuda-nvcc-cu12", "12.8.93")? else { return Ok(()) };
    let assembler = wheel.join("nvidia/cuda_nvcc/bin/ptxas");
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("kernels.ptx");
    std::fs::write(&source, KERNELS)?;
    for architecture in ["sm_52", "sm_70", "sm_80", "sm_90", "sm_100"] {
        let output = folder.path().join(architecture);
        let arguments = ["-arch", architecture, "-o", &output.to_string_lossy(), &source.to_string_lossy()];
        let done = fetch::bounded("60", &assembler, &arguments)?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{architecture}: {said}");
        std::fs::metadata(&output).with_context(|| format!("no code for {architecture}"))?;
    }
    Ok(())
}
