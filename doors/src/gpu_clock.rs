//! The GPU's clock on the host's.
//!
//! NCCL's proxy thread polls for what a kernel wrote: it sees a GPU time stamp some microseconds after it was taken,
//! never before. The smallest (host - GPU) of many is therefore the offset but for the shortest delay of a poll.

use wire::clock::MonoNanos;

/// Pairs of one window give one minimum.
const WINDOW_NANOS: i64 = 1_000_000_000;
/// So many windows are looked at: clocks that drift apart by 1e-5 move by 40 us in them.
const WINDOWS: usize = 4;

/// Offset of one GPU's `%globaltimer`.
#[derive(Debug, Default)]
pub struct GpuClock {
    /// (host time at which the window began, smallest host - GPU in it), oldest first.
    windows: Vec<(i64, i64)>,
}

impl GpuClock {
    /// Takes in that the host saw at `host` what the GPU had stamped with `gpu`.
    pub fn seen(&mut self, gpu: u64, host: MonoNanos) {
        let offset = host.0.saturating_sub(gpu.cast_signed());
        match self.windows.last_mut() {
            Some((begin, least)) if host.0 - *begin < WINDOW_NANOS => *least = offset.min(*least),
            _ => {
                if self.windows.len() == WINDOWS {
                    self.windows.remove(0);
                }
                self.windows.push((host.0, offset));
            }
        }
    }

    /// The host's time of a GPU time stamp; `None` before any was seen.
    #[must_use]
    pub fn to_host(&self, gpu: u64) -> Option<MonoNanos> {
        let offset = self.windows.iter().map(|&(_, least)| least).min()?;
        Some(MonoNanos(gpu.cast_signed().saturating_add(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_that_of_the_promptest_poll() {
        let mut clock = GpuClock::default();
        assert_eq!(clock.to_host(5), None);
        // The GPU's clock is 1,000,000 ahead; polls take 3 to 30 us.
        for (gpu, delay) in [(2_000_000, 30_000), (2_100_000, 3_000), (2_200_000, 9_000)] {
            clock.seen(gpu, MonoNanos(gpu.cast_signed() - 1_000_000 + delay));
        }
        assert_eq!(clock.to_host(2_050_000), Some(MonoNanos(1_053_000)));
    }

    #[test]
    fn an_offset_from_long_ago_is_forgotten() {
        let mut clock = GpuClock::default();
        clock.seen(0, MonoNanos(0));
        for second in 1..=4 {
            let host = second * WINDOW_NANOS;
            // The GPU's clock loses 10 us a second.
            clock.seen((host - 10_000 * second).cast_unsigned(), MonoNanos(host));
        }
        assert_eq!(clock.to_host(0), Some(MonoNanos(10_000)));
    }
}
