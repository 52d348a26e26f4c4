//! The colors. Each has one meaning in all views, and color-blind users can distinguish them.
//!
//! The parts of a step have the colors of Okabe and Ito, with a light gray in place of black. Communication has the same
//! hue in the ledger and in the waterfall. In the waterfall, hidden communication is pale and patterned, and exposed
//! communication is solid. Magnitudes use cividis.

use wire::live::{Part, SliceKind};

/// A pixel in the format of `ImageData`: red in the lowest byte, alpha in the highest.
pub type Rgba = u32;

/// A transparent pixel.
pub const CLEAR: Rgba = 0;

/// Returns an opaque color.
#[must_use]
pub const fn rgb(red: u8, green: u8, blue: u8) -> Rgba {
    u32::from_le_bytes([red, green, blue, 0xff])
}

/// Returns the color with another opacity.
#[must_use]
pub const fn with_alpha(color: Rgba, alpha: u8) -> Rgba {
    (color & 0x00ff_ffff) | ((alpha as u32) << 24)
}

/// Returns the color of a part of the step ledger.
#[must_use]
pub const fn part(part: Part) -> Rgba {
    match part {
        Part::Input => rgb(0xe6, 0x9f, 0x00),
        Part::H2d => rgb(0xf0, 0xe4, 0x42),
        Part::Forward => rgb(0x56, 0xb4, 0xe9),
        Part::Backward => rgb(0x00, 0x72, 0xb2),
        Part::ExposedWait => rgb(0xd5, 0x5e, 0x00),
        Part::ExposedTransfer => rgb(0xcc, 0x79, 0xa7),
        Part::Optimizer => rgb(0x00, 0x9e, 0x73),
        Part::Pause => rgb(0x64, 0x50, 0xd2),
        Part::Idle => rgb(0x3f, 0x46, 0x50),
        Part::Other => rgb(0xc3, 0xc8, 0xcf),
    }
}

/// The color of what a verdict explains. It is not part of a step.
pub const ALARM: Rgba = rgb(0xb8, 0x24, 0x3a);

/// The color of the imbalance: exposed wait with a steady reason. It is as light as no part of a step is, so that it
/// differs from the exposed wait for color-blind users too.
pub const IMBALANCE: Rgba = rgb(0x7a, 0x2f, 0x00);

/// The color of the time in which a job starts.
pub const START: Rgba = rgb(0x8c, 0x86, 0x2e);

/// The color of the time outside of steps in which nothing is known to happen.
pub const IDLE: Rgba = rgb(0x7d, 0x84, 0x8f);

/// Colors for lines that each show one run or one rank: Paul Tol's "vibrant" scheme without its gray and one of its reds.
/// The other red is the last, because it is near the color of the culprit.
const LINES: [Rgba; 5] = [
    rgb(0x00, 0x77, 0xbb),
    rgb(0xee, 0x77, 0x33),
    rgb(0x00, 0x99, 0x88),
    rgb(0x33, 0xbb, 0xee),
    rgb(0xee, 0x33, 0x77),
];

/// Returns the color of a line among others of its kind, and whether the line is dashed. After ten lines both repeat, so
/// a line must have a label too.
#[must_use]
pub const fn line(at: usize) -> (Rgba, bool) {
    (LINES[at % LINES.len()], (at / LINES.len()) % 2 == 1)
}

/// The pattern of a fill. Patterns differ without their color too. All but the solid one are pale: the slice costs
/// nothing, or nothing happens in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One color.
    Solid,
    /// Diagonal stripes.
    Diagonal,
    Dots,
    /// Horizontal stripes.
    Horizontal,
}

impl Pattern {
    /// Returns the name of the pattern in the style sheet.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Solid => "solid",
            Self::Diagonal => "diagonal",
            Self::Dots => "dots",
            Self::Horizontal => "horizontal",
        }
    }

    /// Returns the share of the color at a device pixel, 0 to 1.
    #[must_use]
    pub const fn share(self, x: usize, y: usize) -> f32 {
        let is_full = match self {
            Self::Solid => return 1.0,
            Self::Diagonal => (x + y) % 6 < 2,
            Self::Dots => x % 4 < 2 && y % 4 < 2,
            Self::Horizontal => y % 4 < 2,
        };
        if is_full { 0.62 } else { 0.20 }
    }
}

/// The fill of a slice of the waterfall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    pub color: Rgba,
    pub pattern: Pattern,
}

/// Returns the fill of a kind of slice.
#[must_use]
pub const fn slice(kind: SliceKind) -> Paint {
    let (color, pattern) = match kind {
        SliceKind::Input => (part(Part::Input), Pattern::Solid),
        SliceKind::H2d => (part(Part::H2d), Pattern::Solid),
        SliceKind::Forward => (part(Part::Forward), Pattern::Solid),
        SliceKind::Backward => (part(Part::Backward), Pattern::Solid),
        SliceKind::Optimizer => (part(Part::Optimizer), Pattern::Solid),
        SliceKind::Checkpoint
        | SliceKind::Evaluation
        | SliceKind::GarbageCollection
        | SliceKind::Compilation => (part(Part::Pause), Pattern::Solid),
        SliceKind::Blocked | SliceKind::Queued => (part(Part::Other), Pattern::Horizontal),
        SliceKind::WaitHidden => (part(Part::ExposedWait), Pattern::Diagonal),
        SliceKind::WaitExposed => (part(Part::ExposedWait), Pattern::Solid),
        SliceKind::TransferHidden => (part(Part::ExposedTransfer), Pattern::Dots),
        SliceKind::TransferExposed => (part(Part::ExposedTransfer), Pattern::Solid),
    };
    Paint { color, pattern }
}

/// Formats a color as `#rrggbb`, for text and markers that are not rasterized here.
#[must_use]
pub fn css(color: Rgba) -> String {
    let [red, green, blue, _] = color.to_le_bytes();
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Nine samples of cividis (Nuñez, Anderton and Renslow 2018). Its lightness is monotone, so that color-blind users can
/// read it.
const CIVIDIS: [[u8; 3]; 9] = [
    [0, 34, 78],
    [26, 56, 111],
    [67, 78, 108],
    [97, 101, 111],
    [125, 124, 120],
    [155, 149, 119],
    [188, 175, 111],
    [222, 203, 93],
    [254, 232, 56],
];

/// Returns cividis at `t`, clamped to 0..1.
#[must_use]
pub fn cividis(t: f32) -> Rgba {
    let at = t.clamp(0.0, 1.0) * (CIVIDIS.len() - 1) as f32;
    let low = (at as usize).min(CIVIDIS.len() - 2);
    let mix = at - low as f32;
    let channel = |c: usize| {
        let (a, b) = (f32::from(CIVIDIS[low][c]), f32::from(CIVIDIS[low + 1][c]));
        (a + (b - a) * mix).round() as u8
    };
    rgb(channel(0), channel(1), channel(2))
}

/// Returns a table of [`cividis`], because a heatmap needs a million colors.
#[must_use]
pub fn cividis_table() -> [Rgba; 256] {
    std::array::from_fn(|at| cividis(at as f32 / 255.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(color: Rgba) -> f32 {
        let [r, g, b, _] = color.to_le_bytes().map(f32::from);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    #[test]
    fn cividis_grows_monotonically_lighter() {
        let table = cividis_table();
        assert!(table.windows(2).all(|pair| luminance(pair[0]) <= luminance(pair[1]) + 0.6));
        assert_eq!(cividis(-1.0), rgb(0, 34, 78));
        assert_eq!(cividis(2.0), rgb(254, 232, 56));
    }

    #[test]
    fn parts_have_different_colors() {
        let mut colors = Part::ALL.map(part).to_vec();
        colors.sort_unstable();
        colors.dedup();
        assert_eq!(colors.len(), Part::COUNT);
        assert_eq!(css(part(Part::ExposedWait)), "#d55e00");
    }

    /// Returns CIELAB coordinates of a color as a person with deuteranopia sees it (Machado, Oliveira and Fernandes 2009,
    /// severity 1, in linear light).
    fn lab_under_deuteranopia(color: Rgba) -> [f64; 3] {
        let [r, g, b, _] = color.to_le_bytes();
        let linear = [r, g, b].map(|channel| {
            let channel = f64::from(channel) / 255.0;
            if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
        });
        let product = |matrix: [[f64; 3]; 3], vector: [f64; 3]| {
            matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 2.0))
        };
        let seen = product(
            [
                [0.367322, 0.860646, -0.227968],
                [0.280085, 0.672501, 0.047413],
                [-0.011820, 0.042940, 0.968881],
            ],
            linear,
        );
        let xyz = product(
            [
                [0.4124564, 0.3575761, 0.1804375],
                [0.2126729, 0.7151522, 0.0721750],
                [0.0193339, 0.1191920, 0.9503041],
            ],
            seen,
        );
        let [x, y, z]: [f64; 3] = std::array::from_fn(|at| {
            let share = xyz[at] / [0.95047, 1.0, 1.08883][at];
            if share > 0.008856 { share.cbrt() } else { 7.787 * share + 16.0 / 116.0 }
        });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn parts_differ_under_deuteranopia() {
        let mut named: Vec<(String, Rgba)> =
            Part::ALL.map(|other| (other.name().to_owned(), part(other))).into();
        // In the dark theme, the style sheet has a lighter alarm.
        let dark = rgb(0xff, 0x8d, 0x96);
        named.extend([("alarm".into(), ALARM), ("dark alarm".into(), dark), ("imbalance".into(), IMBALANCE)]);
        for (at, (a, first)) in named.iter().enumerate() {
            for (b, second) in &named[at + 1..] {
                let (p, q) = (lab_under_deuteranopia(*first), lab_under_deuteranopia(*second));
                let difference = p.iter().zip(q).map(|(p, q)| (p - q).powi(2)).sum::<f64>().sqrt();
                assert!(difference > 12.0, "{a} and {b} differ by {difference:.1} only");
            }
        }
    }

    #[test]
    fn ten_lines_differ() {
        let lines: std::collections::BTreeSet<(Rgba, bool)> = (0..12).map(line).collect();
        assert_eq!(lines.len(), 10);
    }

    #[test]
    fn hidden_and_exposed_slices_share_a_hue_and_differ_in_pattern() {
        let (hidden, exposed) = (slice(SliceKind::WaitHidden), slice(SliceKind::WaitExposed));
        assert_eq!(hidden.color, exposed.color);
        assert_ne!(hidden.pattern, exposed.pattern);
    }

    #[test]
    fn patterns_differ_without_their_color() {
        let drawn = |pattern: Pattern| -> String {
            let cell = |at: usize| if pattern.share(at % 8, at / 8) > 0.5 { '#' } else { '.' };
            (0..16).map(cell).collect()
        };
        assert_eq!(drawn(Pattern::Diagonal), "##....###....##.");
        assert_eq!(drawn(Pattern::Dots), "##..##..##..##..");
        assert_eq!(drawn(Pattern::Horizontal), "################");
        let pale = [SliceKind::WaitHidden, SliceKind::TransferHidden, SliceKind::Blocked].map(slice);
        assert!(pale[0].pattern != pale[1].pattern && pale[1].pattern != pale[2].pattern);
    }
}
