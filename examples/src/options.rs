//! The options that all jobs share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::trouble::TroubleOptions;

/// The kind of device to train on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// The core of this rank
    #[default]
    Cpu,
    /// The GPU with index LOCAL_RANK; if there are fewer GPUs than ranks, ranks share them
    Cuda,
}

/// The transport of gradients between GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GradientTransport {
    /// NCCL: every rank has its own GPU
    Nccl,
    /// Pinned host memory, then the same transport as between CPUs: ranks may share a GPU
    Staged,
}

/// The seed, device, transport, bucket size, time limits and outputs of a job.
#[derive(Args, Clone, Debug)]
pub struct JobOptions {
    /// Random seed for the initial parameters and the order of samples; must be equal on all ranks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Divide --batch among the ranks (strong scaling) instead of giving each rank --batch samples (weak scaling)
    #[arg(long)]
    pub strong: bool,
    /// Device to train on; `cuda` requires a program that was built for GPUs
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceKind,
    /// Transport of gradients between GPUs [default: nccl if every rank of this host has its own GPU, else staged]
    #[arg(long, value_enum)]
    pub transport: Option<GradientTransport>,
    /// Reduce in two levels, within and between nodes of this many consecutive ranks; must divide the number of ranks.
    /// Only with NCCL
    #[arg(long, value_name = "RANKS")]
    pub ranks_per_node: Option<u32>,
    /// Size at which a gradient bucket is full, in MiB [default: chosen to give the standard model several buckets]
    #[arg(long, value_name = "MIB", env = "PACELINE_BUCKET_CAP_MIB")]
    pub bucket_cap: Option<f64>,
    /// Number of steps between two progress lines
    #[arg(long, value_name = "STEPS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub log_every: u64,
    /// Write the step and the average loss over all ranks of every step to this file (rank 0)
    #[arg(long, value_name = "FILE")]
    pub loss_out: Option<PathBuf>,
    /// Longest duration of a collective before the run fails and names the missing ranks
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub timeout_secs: f64,
    /// Longest time that the ranks wait for each other at the start
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub rendezvous_secs: f64,
    /// Use TCP instead of a Unix socket between ranks of one host
    #[arg(long)]
    pub tcp: bool,
    #[command(flatten)]
    pub trouble: TroubleOptions,
}
