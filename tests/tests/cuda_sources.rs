//! What the code for GPUs takes for granted, against NVIDIA's own: the header of several releases of NCCL, and the
//! assembler for several generations of GPUs.

use std::path::Path;

use anyhow::Context as _;
use gpu::device::KERNELS;
use gpu::nccl::communicator::assumptions;
use paceline_tests::{fetch, nvidia};

/// What nccl.h takes from CUDA's headers.
const CUDA_RUNTIME: &str = "
#pragma once
#include <stddef.h>
#include <stdint.h>
#define CUDART_VERSION 13000
typedef struct CUstream_st *cudaStream_t;
";

#[test]
fn nccl_has_the_layout_and_the_codes_that_we_use() -> anyhow::Result<()> {
    for (package, release) in [("nvidia-nccl-cu12", "2.20.5"), ("nvidia-nccl-cu13", "2.28.9")] {
        let Some(wheel) = nvidia::wheel(package, release)? else { return Ok(()) };
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
        write("cuda_runtime.h", CUDA_RUNTIME)?;
        write("cuda_fp16.h", "")?;
        write("cuda_bf16.h", "")?;
        let assumed = assumptions();
        let prints =
            assumed.iter().map(|(what, _)| format!("printf(\"%llu\\n\", (unsigned long long)({what}));"));
        let body = prints.collect::<Vec<_>>().join("\n");
        write(
            "print.c",
            &format!("#include <stdio.h>\n#include <nccl.h>\nint main(void) {{\n{body}\nreturn 0;\n}}\n"),
        )?;
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let includes =
            [folder.path(), &wheel.join("nvidia/nccl/include")].map(|path| format!("-I{}", path.display()));
        let arguments = ["-w", "-o", &at("print"), &at("print.c"), &includes[0], &includes[1]];
        fetch::succeed(Path::new("cc"), &arguments).map_err(anyhow::Error::msg)?;
        let printed = fetch::bounded("20", &folder.path().join("print"), &[])?.stdout;
        let printed: Vec<u64> =
            String::from_utf8(printed)?.lines().map(str::parse).collect::<Result<_, _>>()?;
        let found: Vec<(&str, u64)> = assumed.iter().map(|(what, _)| *what).zip(printed).collect();
        assert_eq!(found, assumed, "NCCL {release}");
    }
    Ok(())
}

#[test]
fn kernels_are_good_for_every_generation_of_gpus_that_cuda_12_has() -> anyhow::Result<()> {
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
