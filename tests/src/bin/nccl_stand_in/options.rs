//! The command-line options.

use anyhow::{Context as _, bail};

const USAGE: &str = "usage: nccl_stand_in [--interface 1..6] [--steps N] [--slow-rank R] [--fork] [--exit-code N] \
                     [--pairs | --pipeline | --experts] [--together N]";

/// The options; see [`USAGE`].
pub(crate) struct Options {
    /// The version of NCCL's profiler interface.
    pub(crate) interface: u32,
    pub(crate) steps: u64,
    /// The rank that computes 10 ms longer in every step.
    pub(crate) slow: Option<u32>,
    /// Whether a process forks halfway.
    pub(crate) forks: bool,
    /// Whether layers are split over two ranks (tensor parallelism).
    pub(crate) pairs: bool,
    /// Whether each rank has some of the layers (pipeline parallelism).
    pub(crate) pipeline: bool,
    /// Whether ranks exchange samples (expert parallelism).
    pub(crate) experts: bool,
    /// The number of ranks in one process, each on its own device.
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
