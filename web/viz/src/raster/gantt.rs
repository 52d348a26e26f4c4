//! The waterfall of one step: one row per rank, with lanes for compute, communication and the queue. If there are more
//! ranks than room, a row shows the slowest of its ranks: the one that started its collectives last.

use wire::live::{SliceKind, Waterfall};

use crate::palette::{self, with_alpha};
use crate::span::Span;

use super::Frame;

/// The slices of a waterfall, in drawing order.
#[derive(Clone, Debug, Default)]
pub struct Gantt {
    /// Indices into the slice columns, sorted by row, then lane, then beginning.
    order: Vec<u32>,
    /// The index in `order` at which each (row, lane) begins, plus the end.
    starts: Vec<u32>,
    /// How late each row is. The slowest row has the largest value.
    lateness: Vec<f64>,
    rows: usize,
}

/// Returns how late each row is, for the order of rows: the sum of the starts of its collectives, or the end of its step
/// if the waterfall has no collective.
#[must_use]
pub fn lateness(waterfall: &Waterfall) -> Vec<f64> {
    if waterfall.bucket_row.is_empty() {
        return waterfall.rank_end.clone();
    }
    let mut starts = vec![0.0; waterfall.rank.len()];
    for (row, start) in waterfall.bucket_row.iter().zip(&waterfall.bucket_start) {
        starts[*row as usize] += start;
    }
    starts
}

/// The lowest row in pixels. Lower rows are merged, and one row then represents several ranks.
const LOWEST_ROW_PIXELS: f64 = 5.0;

const LANES: usize = 3;

/// The lanes of a row, in fractions of its height: compute, communication, queue.
const TALL: [(f32, f32); LANES] = [(0.06, 0.46), (0.48, 0.80), (0.82, 0.92)];
/// The lanes of rows that are too low for a queue lane.
const LOW: [(f32, f32); LANES] = [(0.0, 0.5), (0.5, 1.0), (1.0, 1.0)];
const TALL_FROM_PIXELS: f64 = 14.0;

fn lane_of(kind: u8) -> usize {
    match SliceKind::ALL[usize::from(kind)] {
        SliceKind::Queued => 2,
        kind => usize::from(kind.is_communication()),
    }
}

/// The visible part of a waterfall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The visible time, in nanoseconds since the step's origin.
    pub time: Span,
    /// The visible rows. Row 0 is at the top.
    pub rows: Span,
}

impl Gantt {
    /// Sorts the slices of a consistent waterfall.
    #[must_use]
    pub fn new(waterfall: &Waterfall) -> Self {
        let lane = |slice: u32| {
            let at = slice as usize;
            waterfall.slice_row[at] as usize * LANES + lane_of(waterfall.slice_kind[at])
        };
        let begin = |slice: u32| waterfall.slice_begin[slice as usize];
        let mut order: Vec<u32> = (0..waterfall.slice_row.len() as u32).collect();
        order.sort_by(|&a, &b| lane(a).cmp(&lane(b)).then(begin(a).total_cmp(&begin(b))));
        let lanes = waterfall.rank.len() * LANES;
        let starts = (0..=lanes).map(|l| order.partition_point(|&slice| lane(slice) < l) as u32).collect();
        Self { order, starts, lateness: lateness(waterfall), rows: waterfall.rank.len() }
    }

    /// Returns the number of ranks that a row represents if `rows` share `height` pixels.
    #[must_use]
    pub fn ranks_a_row(rows: Span, height: f64) -> usize {
        let mut ranks = 1;
        while (ranks as f64) < rows.len() && ranks as f64 * height / rows.len() < LOWEST_ROW_PIXELS {
            ranks *= 2;
        }
        ranks
    }

    /// Returns the row that represents the `ranks` rows around `row`: the slowest of them.
    #[must_use]
    pub fn standing_for(&self, row: usize, ranks: usize) -> usize {
        let first = row / ranks * ranks;
        let group = first..(first + ranks).min(self.rows);
        group.max_by(|&a, &b| self.lateness[a].total_cmp(&self.lateness[b])).unwrap_or(row)
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn lane(&self, row: usize, lane: usize) -> &[u32] {
        let at = row * LANES + lane;
        &self.order[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Draws the rows that `view` shows. A pixel shows the slice that covers most of it.
    pub fn draw(&self, frame: &mut Frame<'_>, waterfall: &Waterfall, view: View) {
        if view.time.is_empty() || view.rows.is_empty() {
            return;
        }
        let mut cover = vec![(0.0f32, u32::MAX); frame.width()];
        let last = (view.rows.end.ceil() as usize).min(self.rows);
        let ranks = Self::ranks_a_row(view.rows, frame.height() as f64);
        for row in (view.rows.start.max(0.0) as usize / ranks * ranks..last).step_by(ranks) {
            let shown = self.standing_for(row, ranks);
            for lane in 0..LANES {
                let (top, bottom) = lane_pixels(view.rows, frame.height(), row, ranks, lane);
                if top >= bottom {
                    continue;
                }
                cover.fill((0.0, u32::MAX));
                for &slice in self.lane(shown, lane) {
                    cover_slice(&mut cover, waterfall, view.time, slice);
                }
                paint_lane(frame, waterfall, &cover, top, bottom);
            }
        }
    }

    /// Returns the slice at a pixel, or the nearest one of that lane within `reach` pixels.
    #[must_use]
    pub fn slice_at(
        &self,
        waterfall: &Waterfall,
        view: View,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        reach: f64,
    ) -> Option<u32> {
        let row = view.rows.to_value(y, height);
        if row < 0.0 || row as usize >= self.rows {
            return None;
        }
        let ranks = Self::ranks_a_row(view.rows, height);
        let first = row as usize / ranks * ranks;
        let lane = (0..LANES).find(|&lane| {
            let (top, bottom) = lane_pixels(view.rows, height.max(1.0) as usize, first, ranks, lane);
            (top as f64..bottom as f64 + 1.0).contains(&y)
        })?;
        let row = self.standing_for(first, ranks);
        let distance = |&&slice: &&u32| {
            let at = slice as usize;
            let begin = view.time.to_pixel(waterfall.slice_begin[at], width);
            let end = view.time.to_pixel(waterfall.slice_end[at], width);
            (begin - x).max(x - end).max(0.0)
        };
        let nearest = self.lane(row, lane).iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        (distance(&nearest) <= reach).then_some(*nearest)
    }

    /// Returns the top and bottom of a slice's lane in pixels, for outlines and labels.
    #[must_use]
    pub fn slice_pixels(
        &self,
        waterfall: &Waterfall,
        slice: u32,
        rows: Span,
        height: usize,
    ) -> (usize, usize) {
        let at = slice as usize;
        let ranks = Self::ranks_a_row(rows, height as f64);
        let row = waterfall.slice_row[at] as usize / ranks * ranks;
        lane_pixels(rows, height, row, ranks, lane_of(waterfall.slice_kind[at]))
    }
}

/// Returns the top and bottom of a lane in whole pixels. The row represents `ranks` ranks.
fn lane_pixels(rows: Span, height: usize, row: usize, ranks: usize, lane: usize) -> (usize, usize) {
    let per_row = ranks as f64 * height as f64 / rows.len();
    let lanes = if per_row >= TALL_FROM_PIXELS { TALL } else { LOW };
    let y = |share: f32| {
        let y = rows.to_pixel(row as f64, height as f64) + f64::from(share) * per_row;
        y.round().clamp(0.0, height as f64) as usize
    };
    (y(lanes[lane].0), y(lanes[lane].1))
}

/// Assigns to the slice every pixel of which it covers more than earlier slices do.
fn cover_slice(cover: &mut [(f32, u32)], waterfall: &Waterfall, time: Span, slice: u32) {
    let width = cover.len() as f64;
    let at = slice as usize;
    let begin = time.to_pixel(waterfall.slice_begin[at], width).max(0.0);
    let end = time.to_pixel(waterfall.slice_end[at], width).min(width);
    if end <= begin {
        return;
    }
    let (first, last) = (begin as usize, (end.ceil() as usize).min(cover.len()));
    for (x, pixel) in cover.iter_mut().enumerate().take(last).skip(first) {
        let share = (end.min(x as f64 + 1.0) - begin.max(x as f64)) as f32;
        if share > pixel.0 {
            *pixel = (share, slice);
        }
    }
}

fn paint_lane(frame: &mut Frame<'_>, waterfall: &Waterfall, cover: &[(f32, u32)], top: usize, bottom: usize) {
    for (x, &(share, slice)) in cover.iter().enumerate() {
        if slice == u32::MAX {
            continue;
        }
        let kind = SliceKind::ALL[usize::from(waterfall.slice_kind[slice as usize])];
        let paint = palette::slice(kind);
        // Adjacent slices of one color are separated where there is room: the first pixel of a slice is paler.
        let begins = x > 0 && cover[x - 1].1 != slice && cover[x - 1].1 != u32::MAX;
        let roomy = cover.get(x + 3).is_some_and(|&(_, further)| further == slice);
        let alpha = if begins && roomy { 90.0 } else { 255.0 } * share.max(0.35);
        for y in top..bottom {
            frame.row(y)[x] = with_alpha(paint.color, (alpha * paint.pattern.share(x, y)) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::palette::{CLEAR, Rgba};
    use proptest::prelude::*;

    /// Slices as (row, kind, begin, end).
    fn waterfall(rows: u32, slices: &[(u32, SliceKind, f64, f64)]) -> Waterfall {
        let known = vec![0.0; rows as usize];
        let waterfall = Waterfall {
            span_nanos: 16.0,
            rank: (0..rows).collect(),
            clock_bound: known.clone(),
            rank_begin: known.clone(),
            rank_end: known,
            slice_row: slices.iter().map(|s| s.0).collect(),
            slice_kind: slices.iter().map(|s| s.1 as u8).collect(),
            slice_bucket: vec![u32::MAX; slices.len()],
            slice_begin: slices.iter().map(|s| s.2).collect(),
            slice_end: slices.iter().map(|s| s.3).collect(),
            ..Waterfall::default()
        };
        assert!(waterfall.is_consistent());
        waterfall
    }

    fn picture(waterfall: &Waterfall, view: View, width: usize, height: usize) -> String {
        let mut pixels = vec![0; width * height];
        Gantt::new(waterfall).draw(&mut Frame::new(&mut pixels, width, height), waterfall, view);
        let letter = |pixel: &Rgba| {
            let same = |kind: &SliceKind| palette::slice(*kind).color & 0x00ff_ffff == pixel & 0x00ff_ffff;
            match SliceKind::ALL.iter().find(|kind| same(kind)) {
                _ if *pixel == CLEAR => ' ',
                Some(SliceKind::Forward) => 'f',
                Some(SliceKind::Backward) => 'b',
                Some(SliceKind::WaitHidden) => 'w',
                Some(SliceKind::TransferHidden) => 't',
                Some(SliceKind::Blocked) => 'q',
                _ => '?',
            }
        };
        pixels.chunks(width).map(|row| row.iter().map(letter).collect::<String>() + "\n").collect()
    }

    const ALL: View = View { time: Span { start: 0.0, end: 16.0 }, rows: Span { start: 0.0, end: 2.0 } };

    fn two_ranks() -> Waterfall {
        waterfall(
            2,
            &[
                (0, SliceKind::Forward, 0.0, 4.0),
                (0, SliceKind::Backward, 4.0, 12.0),
                (0, SliceKind::TransferExposed, 8.0, 16.0),
                (1, SliceKind::Forward, 0.0, 8.0),
                (1, SliceKind::WaitHidden, 2.0, 3.0),
                (1, SliceKind::Queued, 1.0, 2.0),
            ],
        )
    }

    #[test]
    fn low_rows_have_two_lanes() {
        assert_eq!(
            picture(&two_ranks(), ALL, 16, 12).lines().step_by(3).collect::<Vec<_>>(),
            ["ffffbbbbbbbb    ", "        tttttttt", "ffffffff        ", "  w             "]
        );
    }

    #[test]
    fn a_row_of_many_ranks_shows_the_slowest() {
        let mut slices: Vec<_> = (0..8).map(|row| (row, SliceKind::Forward, 0.0, 8.0)).collect();
        slices[5].1 = SliceKind::Backward;
        let mut waterfall = waterfall(8, &slices);
        waterfall.rank_end = vec![8.0, 8.0, 8.0, 8.0, 8.0, 12.0, 8.0, 8.0];
        let all = Span::new(0.0, 8.0);
        assert_eq!(Gantt::ranks_a_row(all, 10.0), 4);
        let gantt = Gantt::new(&waterfall);
        assert_eq!((gantt.standing_for(6, 4), gantt.standing_for(1, 1)), (5, 1));
        let drawn = picture(&waterfall, View { time: Span::new(0.0, 8.0), rows: all }, 4, 10);
        assert!(drawn.starts_with("ffff\n") && drawn.contains("bbbb\n"), "{drawn}");
        let hit = gantt.slice_at(
            &waterfall,
            View { time: Span::new(0.0, 8.0), rows: all },
            (2.0, 6.0),
            (4.0, 10.0),
            1.0,
        );
        assert_eq!(hit, Some(5));
    }

    #[test]
    fn a_pixel_goes_to_the_slice_that_covers_most_of_it() {
        let view = View { time: Span::new(0.0, 48.0), rows: Span::new(0.0, 1.0) };
        let slices = [(0, SliceKind::Forward, 0.0, 8.0), (0, SliceKind::Backward, 8.0, 12.0)];
        assert_eq!(picture(&waterfall(1, &slices), view, 4, 2), "f   \n    \n");
    }

    #[test]
    fn slices_are_hit_within_reach() {
        let waterfall = two_ranks();
        let gantt = Gantt::new(&waterfall);
        let hit = |x, y| gantt.slice_at(&waterfall, ALL, (x, y), (16.0, 80.0), 2.0);
        assert_eq!(hit(1.0, 10.0), Some(0));
        assert_eq!(hit(6.0, 10.0), Some(1));
        assert_eq!(hit(6.5, 25.0), Some(2), "a little left of the transfer");
        assert_eq!(hit(3.0, 25.0), None, "too far from it");
        assert_eq!(hit(2.5, 65.0), Some(4));
        assert_eq!(hit(1.5, 75.0), Some(5), "the queue lane");
        assert_eq!(hit(1.0, 200.0), None);
    }

    proptest! {
        #[test]
        fn a_single_slice_is_visible_however_short(begin in 0.0..15.9, len in 1e-6..0.1, width in 1usize..200) {
            let waterfall = waterfall(1, &[(0, SliceKind::WaitExposed, begin, begin + len)]);
            let mut pixels = vec![0; width * 2];
            let view = View { time: ALL.time, rows: Span::new(0.0, 1.0) };
            Gantt::new(&waterfall).draw(&mut Frame::new(&mut pixels, width, 2), &waterfall, view);
            prop_assert!(pixels.iter().any(|&pixel| pixel >> 24 >= 80));
        }
    }
}
