//! What is asked for on the command line.

use anyhow::{Context as _, bail};

const USAGE: &str = "usage: nccl_stand_in [--interface 1..6] [--steps N] [--slow-rank R] [--fork] [--exit-code N] \
                     [--pairs | --pipeline | --experts] [--together N]";

/// See [`USAGE`].
pub(crate) struct Options {
    /// Of NCCL's profiler.
    pub(crate) interface: u32,
    pub(crate) steps: u64,
    /// Computes 10 ms longer in every step.
    pub(crate) slow: Option<u32>,
    /// A process forks in the middle.
    pub(crate) forks: bool,
    /// Layers are split over two ranks.
    pub(crate) pairs: bool,
    /// Each rank has some layers.
    pub(crate) pipeline: bool,
    /// Ranks send samples to each other.
    pub(crate) experts: bool,
    /// Ranks that a process is, each on a device of its own.
    pub(crate) together: Option<u32>,
    pub(crate) exit_code: u8,
}

impl Options {
    pub(crate) fn from_args() -> anyhow::Result<Self> {
        let mut options = Self {
            interface: 5,
            steps: 150,
            slow: None,
            forks: false,
            pairs: false,
            pipeline: false,
            experts: false,
            together: None,
            exit_code: 0,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|number| number.parse::<u32>().ok()).context(USAGE);
            match word.as_str() {
                "--fork" => options.forks = true,
                "--pairs" => options.pairs = true,
                "--pipeline" => options.pipeline = true,
                "--experts" => options.experts = true,
                "--interface" => options.interface = number()?,
                "--steps" => options.steps = number()?.into(),
                "--slow-rank" => options.slow = Some(number()?),
                "--together" => options.together = Some(number()?),
                "--exit-code" => options.exit_code = number()?.try_into()?,
                _ => bail!(USAGE),
            }
        }
        Ok(options)
    }
}
