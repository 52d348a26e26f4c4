//! Converts the GPU's time to the host's clock.
//!
//! NCCL's proxy thread polls for what a kernel writes. It sees a GPU time stamp some microseconds after it was taken,
//! and never before. The smallest difference (host - GPU) of many pairs is therefore the offset plus the shortest
//! polling delay.

use wire::clock::MonoNanos;

/// The length of a window, in nanoseconds. Each window yields one minimum.
const WINDOW_NANOS: i64 = 1_000_000_000;
/// The number of windows considered. Clocks that drift apart by 1e-5 move by 40 us in that time.
const WINDOWS: usize = 4;

/// The offset of one GPU's `%globaltimer` from the host's clock.
#[derive(Debug, Default)]
pub struct GpuClock {
    /// The start of each window by the host's clock, and the smallest difference (host - GPU) in it; oldest first.
    windows: Vec<(i64, i64)>,
}

impl GpuClock {
    /// Records that the host saw the GPU time stamp `gpu` at `host`.
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

    /// Converts a GPU time stamp to the host's clock; `None` before the first pair.
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
    fn the_offset_comes_from_the_fastest_poll() {
        let mut clock = GpuClock::default();
        assert_eq!(clock.to_host(5), None);
        // The GPU's clock is ahead by 1,000,000 ns; polls take 3 to 30 us.
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
            // The GPU's clock loses 10 us per second.
            clock.seen((host - 10_000 * second).cast_unsigned(), MonoNanos(host));
        }
        assert_eq!(clock.to_host(0), Some(MonoNanos(10_000)));
    }
}
