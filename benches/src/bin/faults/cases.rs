//! The planted faults.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Input,
    Compute,
    Work,
    Host,
    Network,
}

impl Class {
    pub const ALL: [Self; 5] = [Self::Input, Self::Compute, Self::Work, Self::Host, Self::Network];

    /// Returns the spelling of the example jobs' option `--slow-phase`.
    pub fn phase(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Compute => "compute",
            Self::Work => "work",
            Self::Host => "host",
            Self::Network => "network",
        }
    }

    /// Returns the cause that a verdict must name.
    pub fn cause(self) -> &'static str {
        if self == Self::Work { "more_work" } else { self.phase() }
    }
}

/// A training job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub program: &'static str,
    pub ranks: u32,
    /// The number of samples per step, over all ranks.
    pub batch: &'static str,
}

impl Job {
    /// Returns true if this machine has a core for every rank.
    pub fn has_own_cores(self) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.ranks as usize <= cores
    }
}

/// The jobs of real runs.
const JOBS: [Job; 3] = [
    Job { program: "char_lm", ranks: 2, batch: "8" },
    Job { program: "digits", ranks: 2, batch: "64" },
    Job { program: "char_lm", ranks: 4, batch: "8" },
];

/// The jobs of plain runs, used in turn.
pub const PLAIN: [Job; 2] = [JOBS[0], JOBS[2]];

/// The jobs by [`Job::has_own_cores`]. Ranks that share cores slow each other down, which no record shows. There, a
/// fault costs more than the delay of the slow rank.
pub struct Jobs {
    pub own_cores: Vec<Job>,
    pub shared_cores: Vec<Job>,
}

impl Jobs {
    pub fn partition() -> Self {
        let (own_cores, shared_cores) = JOBS.iter().partition(|job| job.has_own_cores());
        Self { own_cores, shared_cores }
    }
}

/// A fault in a real run.
#[derive(Clone, Debug)]
pub struct Real {
    pub job: Job,
    pub class: Class,
    /// The slow ranks: one, or two that are slow together.
    pub slow: Vec<u32>,
    pub millis: f64,
    /// The steps with the fault.
    pub bad: Range<u64>,
}

/// The number of steps of a real run.
pub const STEPS: u64 = 200;

/// The number of steps of a plain run, long enough for a core to be slow for a while.
pub const PLAIN_STEPS: u64 = 500;

/// Returns the real case with index `at`. Classes and jobs take turns and ranks and sizes are drawn, so all
/// combinations occur.
pub fn real(at: usize, jobs: &[Job], random: &mut Random) -> Real {
    let class = Class::ALL[at % Class::ALL.len()];
    let job = jobs[at / Class::ALL.len() % jobs.len()];
    let rank = random.below(u64::from(job.ranks)) as u32;
    // A slow network costs only the part that backward does not hide.
    let sizes = if class == Class::Network { [15.0, 30.0, 60.0] } else { [4.0, 10.0, 30.0] };
    let millis = sizes[random.below(3) as usize];
    let bad = match random.below(4) {
        0 => 60..STEPS,
        1 => 40..140,
        _ => 0..STEPS,
    };
    // Sometimes two of four ranks are slow together.
    let together = job.ranks == 4 && class != Class::Network && random.below(8) == 0;
    let other = together.then(|| (rank + 1 + random.below(3) as u32) % job.ranks);
    let mut slow: Vec<u32> = std::iter::once(rank).chain(other).collect();
    slow.sort_unstable();
    Real { job, class, slow, millis, bad }
}

/// A fault in a simulated run.
#[derive(Clone, Debug)]
pub struct Simulated {
    pub ranks: usize,
    pub class: Class,
    pub rank: usize,
    pub nanos: i64,
    pub steps: u64,
    pub bad: Range<u64>,
}

/// Returns the simulated case with index `at`: 2 to 1,024 ranks and 4 to 60 ms in steps of about 40 ms.
pub fn simulated(at: usize, random: &mut Random) -> Simulated {
    let class = Class::ALL[at % Class::ALL.len()];
    let ranks = 2_usize << (at / Class::ALL.len() % 10);
    let steps = if ranks > 256 { 120 } else { 240 };
    let millis = if class == Class::Network { [25, 40, 60] } else { [4, 10, 30] };
    let nanos = millis[random.below(3) as usize] * 1_000_000;
    let bad = match random.below(4) {
        0 => steps / 3..steps,
        1 => steps / 4..steps * 3 / 4,
        _ => 0..steps,
    };
    Simulated { ranks, class, rank: random.below(ranks as u64) as usize, nanos, steps, bad }
}

/// Random numbers from a seed: SplitMix64 (Steele, Lea, Flood 2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }
}
