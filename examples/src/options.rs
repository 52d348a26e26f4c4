//! Flags that all jobs have.

use std::path::PathBuf;

use clap::Args;

use crate::backend::{DeviceKind, GradientTransport};
use crate::trouble::TroubleOptions;

/// How long, how fast, with which buckets, and what to write.
#[derive(Args, Clone, Debug)]
pub struct JobOptions {
    /// Random seed for the initial parameters and the order of samples; must be equal on all ranks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Divide --batch among the ranks (strong scaling) instead of giving each rank that many samples (weak scaling)
    #[arg(long)]
    pub strong: bool,
    /// Where to train; `cuda` only where the program was built with it
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceKind,
    /// What carries gradients between GPUs [default: nccl where every rank of this host has a GPU, else staged]
    #[arg(long, value_enum)]
    pub transport: Option<GradientTransport>,
    /// Reduce by way of nodes of so many consecutive ranks; the number of ranks must be a multiple. Only with NCCL
    #[arg(long, value_name = "RANKS")]
    pub ranks_per_node: Option<u32>,
    /// Size at which a gradient bucket is full, in MiB [default: such that the standard model has several]
    #[arg(long, value_name = "MIB", env = "PACELINE_BUCKET_CAP_MIB")]
    pub bucket_cap: Option<f64>,
    /// Steps between two lines of progress
    #[arg(long, value_name = "STEPS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub log_every: u64,
    /// Write step and global average loss of every step to this file (rank 0)
    #[arg(long, value_name = "FILE")]
    pub loss_out: Option<PathBuf>,
    /// Longest time a collective may take before the run fails and names who did not come
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub timeout_secs: f64,
    /// Longest time the ranks wait for each other at the start
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub rendezvous_secs: f64,
    /// Use TCP between ranks of one host too, instead of a Unix socket
    #[arg(long)]
    pub tcp: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would show it as the heading of every option")]
    pub trouble: TroubleOptions,
}
