//! End-to-end tests of the GPU parts on the fake GPU.

mod acceptance;
mod bursts;
mod cupti_records;
mod fake_gpu;
mod nccl_groups;
mod reducer_on_cuda;
mod reducer_on_nodes;
