//! End-to-end tests of what observes unmodified jobs: hooks into NCCL, CUDA, NVTX and PyTorch.

mod captures;
mod cuda_hook;
mod cuda_sources;
mod gallery;
mod layouts;
mod lines;
mod memory;
mod mishaps;
mod nccl_calls;
mod nccl_plugin;
mod nvtx_ranges;
mod pauses;
mod pythons;
mod pytorch;
mod releases;
mod restarts;
mod wheel;
mod workload;
