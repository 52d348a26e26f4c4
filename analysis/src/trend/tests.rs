//! Trends in series with the noise of shared cores.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;

/// The kinds of noise that processors have, as a share of the level: independent; dependent on the value before, for some values or
/// for many; between two levels; drifting between bounds; with stops.
#[derive(Clone, Copy, Debug)]
enum Noise {
    White,
    Short,
    Long,
    Levels,
    Wanders,
    Stops,
}

const ALL: [Noise; 6] =
    [Noise::White, Noise::Short, Noise::Long, Noise::Levels, Noise::Wanders, Noise::Stops];

fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// Returns noise whose deviation is about `size`.
fn noise(kind: Noise, count: usize, size: f64, random: &mut ChaCha8Rng) -> Vec<f64> {
    let mut state: f64 = 0.0;
    let next = |_| {
        let fresh = normal(random);
        match kind {
            Noise::White => fresh * size,
            Noise::Short | Noise::Long => {
                let keeps: f64 = if matches!(kind, Noise::Short) { 0.8 } else { 0.99 };
                state = keeps * state + (1.0 - keeps * keeps).sqrt() * fresh;
                state * size
            }
            Noise::Levels => {
                // A neighbor comes and goes every hundred steps.
                state = if random.random::<f64>() < 0.01 { 1.0 - state } else { state };
                2.0 * size * state + 0.3 * size * fresh
            }
            Noise::Wanders => {
                state = (state + 0.1 * fresh).clamp(-1.5, 1.5);
                state * size
            }
            Noise::Stops => {
                let stop = if random.random::<f64>() < 0.02 { 20.0 } else { 0.0 };
                (fresh + stop) * size
            }
        }
    };
    (0..count).map(next).collect()
}

fn series(values: impl IntoIterator<Item = f64>) -> Vec<(f64, f64)> {
    values.into_iter().enumerate().map(|(at, value)| (at as f64, value)).collect()
}

#[test]
fn growth_of_any_course_is_found_with_its_slope() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for kind in ALL {
        for grows in [|x: f64| x, |x: f64| x * x, |x: f64| (1.0 + x).ln() / 2.0_f64.ln()] {
            let noise = noise(kind, 400, 0.05, &mut random);
            let points =
                series(noise.iter().enumerate().map(|(at, off)| 1.0 + off + 2.0 * grows(at as f64 / 399.0)));
            let trend = rising(&points).unwrap_or_else(|| panic!("{kind:?} {:?}", blocks(&points)));
            let rise = trend.to - trend.from;
            assert!((1.5..2.3).contains(&rise), "{kind:?}: {trend:?}");
            assert!((trend.slope * 400.0 - 2.0).abs() < 0.4, "{kind:?}: {trend:?}");
        }
    }
}

#[test]
fn a_step_a_dent_and_growth_that_levels_off_are_no_trend() {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let steps = 600;
    let trend_with = |shape: &dyn Fn(f64) -> f64, random: &mut ChaCha8Rng| {
        let noise = noise(Noise::White, steps, 0.03, random);
        rising(&series(noise.iter().enumerate().map(|(at, off)| 1.0 + off + shape(at as f64 / steps as f64))))
    };
    let level = |x: f64| if x > 0.4 { 1.0 } else { 0.0 };
    let dent = |x: f64| 1.0 - (x - 0.5).abs();
    let fills = |x: f64| 1.0 - (-12.0 * x).exp();
    let falls = |x: f64| 1.0 - x;
    let shapes: [&dyn Fn(f64) -> f64; 4] = [&level, &dent, &fills, &falls];
    for shape in shapes {
        assert_eq!(trend_with(shape, &mut random), None);
    }
    assert_eq!(rising(&series((0..90).map(f64::from))), None, "too few");
    assert_eq!(rising(&series((0..200).map(|_| 1.0))), None, "all equal");
}

/// Draws healthy series with each kind of noise, and counts those that rise all along by 15 % of the level or more.
#[test]
fn healthy_series_seldom_have_a_trend_that_matters() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for kind in ALL {
        let draws = 1_000;
        let found = (0..draws).filter(|_| {
            let count = random.random_range(100..2_000);
            let values = noise(kind, count, 0.08, &mut random);
            let trend = rising(&series(values.into_iter().map(|off| 1.0 + off)));
            trend.is_some_and(|trend| trend.to >= 1.15 * trend.from)
        });
        let found = found.count();
        assert!(found <= draws / 200, "{kind:?}: {found} of {draws}");
    }
}

#[test]
fn the_interval_holds_the_slope_also_if_neighbors_are_alike() {
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let mut held = 0;
    let draws = 400;
    for _ in 0..draws {
        let values = noise(Noise::Short, 600, 0.1, &mut random);
        let points = series(values.iter().enumerate().map(|(at, off)| off + 3.0 * at as f64 / 600.0));
        let trend = rising(&points).expect("a trend");
        held += usize::from((trend.slope_range.0..=trend.slope_range.1).contains(&(3.0 / 600.0)));
    }
    assert!(held * 100 >= draws * 92, "{held} of {draws}");
}
