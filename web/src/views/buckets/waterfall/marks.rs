//! What is drawn over the slices: bucket numbers, the marks of the selected bucket, and arrows to the ranks that wait.

use model::buckets::waits::{Waits, waits};
use viz::raster::gantt::{Gantt, View};
use wire::live::Waterfall;

use super::super::Drawn;
use crate::canvas::Size;
use crate::pen::{Align, Pen};

/// The lowest row with all marks, in pixels. Lower rows show only the start of the bucket.
const ALL_MARKS_PIXELS: f64 = 14.0;
/// The lowest row with room for bucket numbers, in pixels.
const LABELS_FROM_PIXELS: f64 = 24.0;
/// The length of an arrow's head, in pixels.
const HEAD_PIXELS: f64 = 7.0;

fn slice_box(size: Size, shown: &Drawn, view: View, slice: u32) -> (f64, f64, f64, f64) {
    let at = slice as usize;
    let x = view.time.to_pixel(shown.waterfall.slice_begin[at], size.width);
    let end = view.time.to_pixel(shown.waterfall.slice_end[at], size.width);
    let (top, bottom) =
        shown.gantt.slice_pixels(&shown.waterfall, slice, view.rows, size.height.round() as usize);
    (x, top as f64, (end - x).max(1.0), bottom.saturating_sub(top) as f64)
}

/// Draws the outline of a slice.
pub fn outline(pen: &Pen, size: Size, shown: &Drawn, view: View, slice: u32) {
    let (x, y, width, height) = slice_box(size, shown, view, slice);
    pen.outline(x, y, width, height);
}

/// Writes bucket numbers in the slices that have room for them.
pub fn labels(pen: &Pen, size: Size, shown: &Drawn, view: View) {
    let waterfall = &shown.waterfall;
    // Lower rows have no room for numbers.
    if size.height / view.rows.len() < LABELS_FROM_PIXELS {
        return;
    }
    for slice in 0..waterfall.slice_row.len() as u32 {
        let bucket = waterfall.slice_bucket[slice as usize];
        if bucket == u32::MAX || !view.rows.contains(f64::from(waterfall.slice_row[slice as usize]) + 0.5) {
            continue;
        }
        let (x, y, width, height) = slice_box(size, shown, view, slice);
        if width >= 28.0 && height >= 12.0 && x < size.width && x + width > 0.0 {
            let text = waterfall.bucket[bucket as usize].to_string();
            let middle = (x.max(0.0) + (x + width).min(size.width)) / 2.0;
            let half = pen.text_width(&text) / 2.0 + 3.0;
            pen.rect(middle - half, y + height / 2.0 - 6.5, half * 2.0, 13.0, pen.inks.ground);
            pen.text(middle, y + height / 2.0 + 0.5, &text, Align::Middle, pen.inks.ink);
        }
    }
}

/// Marks ready, launch, start and end of one bucket on every drawn rank, and points from the last of `all` ranks to
/// start to those that wait for it.
pub fn marks(pen: &Pen, size: Size, all: &Waterfall, shown: &Drawn, view: View, bucket: u32) {
    let waterfall = &shown.waterfall;
    let x = |time: f64| view.time.to_pixel(time, size.width);
    let together = Gantt::ranks_a_row(view.rows, size.height);
    let row_pixels = together as f64 * size.height / view.rows.len();
    for at in (0..waterfall.bucket.len()).filter(|&at| waterfall.bucket[at] == bucket) {
        let row = waterfall.bucket_row[at] as usize;
        // Only the rank that represents its row is marked. The last start is that of all ranks.
        if shown.gantt.standing_for(row, together) != row {
            continue;
        }
        let top = view.rows.to_pixel((row / together * together) as f64, size.height);
        let (middle, bottom) = (top + row_pixels * 0.46, top + row_pixels * 0.94);
        let mark = |time: f64, dashed: bool| {
            pen.line((x(time), middle), (x(time), bottom), pen.inks.ink, dashed);
        };
        mark(waterfall.bucket_start[at], false);
        if row_pixels >= ALL_MARKS_PIXELS {
            mark(waterfall.bucket_launch[at], true);
            mark(waterfall.bucket_end[at], false);
            pen.ring(x(waterfall.bucket_ready[at]), middle, 3.5, pen.inks.ink);
        }
    }
    if let Some(waits) = waits(all, bucket) {
        last_start(pen, size, x(waits.last_start_nanos), bucket);
        if row_pixels >= ALL_MARKS_PIXELS {
            arrows(pen, size, (all, shown), view, &waits);
        }
    }
}

/// Draws the line of the last start over all rows, with its label.
fn last_start(pen: &Pen, size: Size, x: f64, bucket: u32) {
    pen.line((x, 0.0), (x, size.height), pen.inks.accent, true);
    let text = format!("last start of bucket {bucket}");
    let width = pen.text_width(&text) + 6.0;
    let right = x + width > size.width;
    let (offset, align) = if right { (-5.0, Align::End) } else { (5.0, Align::Start) };
    pen.rect(x + if right { -width - 2.0 } else { 2.0 }, -4.0, width, 14.0, pen.inks.ground);
    pen.text(x + offset, 3.0, &text, align, pen.inks.accent);
}

/// Draws an arrow from the rank that starts last to each drawn rank that waits for it.
fn arrows(pen: &Pen, size: Size, (all, shown): (&Waterfall, &Drawn), view: View, waits: &Waits) {
    let middle_of = |row: usize| {
        let rank = all.rank[row];
        let row = shown.waterfall.rank.iter().position(|&drawn| drawn == rank)?;
        Some(view.rows.to_pixel(row as f64 + 0.64, size.height))
    };
    let Some(from) = middle_of(waits.last) else { return };
    let last = view.time.to_pixel(waits.last_start_nanos, size.width);
    pen.dot(last, from, 4.0, pen.inks.accent, false);
    for &(row, nanos) in &waits.waiting {
        let Some(y) = middle_of(row) else { continue };
        let tip = view.time.to_pixel(waits.last_start_nanos - nanos, size.width);
        // The arrow leads along the line of the last start, and then back over the wait.
        let corner = if y > from { y - HEAD_PIXELS } else { y + HEAD_PIXELS };
        pen.lines(&[(last, from), (last, corner), (last - HEAD_PIXELS, y), (tip, y)], pen.inks.accent, false);
        let half = HEAD_PIXELS / 2.0;
        pen.area(
            &[(tip, y), (tip + HEAD_PIXELS, y - half), (tip + HEAD_PIXELS, y + half)],
            pen.inks.accent,
            1.0,
        );
    }
}
