//! Fuzz target for frames of the live stream that a server would never send. They are decoded, stored and drawn as the
//! dashboard does it. Every drawing must end, and stored steps must stay in order.

use ::fuzz::{Corpus, Verdict};
use wire::live::tile::{Reduce, Tile};
use wire::live::{StepColumns, StepRanks, Waterfall};

use crate::palette::CLEAR;
use crate::raster::gantt::{Gantt, View};
use crate::raster::{Frame, area, heatmap, line};
use crate::span::Span;
use crate::steps::{MAX_STEPS, Steps};
use crate::ticks;

const SIZE: (usize, usize) = (96, 48);

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

fn corpus() -> Corpus {
    let rows = 6;
    let steps = StepColumns {
        reset: true,
        ranks: 2,
        step: (3..3 + rows).collect(),
        ended_unix_nanos: vec![1_000; rows as usize],
        step_nanos: vec![3e7; rows as usize],
        samples: vec![8; rows as usize],
        overlap: vec![0.5; rows as usize],
        parts: std::array::from_fn(|part| vec![part as f32 * 1e6; rows as usize]),
        flags: vec![0; rows as usize],
    };
    let later = StepColumns { reset: false, step: (6..6 + rows).collect(), ..steps.clone() };
    let slices = 8;
    let waterfall = Waterfall {
        step: 3,
        span_nanos: 16.0,
        rank: vec![0, 1, 2],
        clock_bound: vec![0.5; 3],
        rank_begin: vec![0.0; 3],
        rank_end: vec![16.0; 3],
        slice_row: (0..slices).map(|slice| slice % 3).collect(),
        slice_kind: (0..slices as u8).collect(),
        slice_bucket: vec![u32::MAX; slices as usize],
        slice_begin: (0..slices).map(f64::from).collect(),
        slice_end: (0..slices).map(|slice| f64::from(slice) + 4.0).collect(),
        ..Waterfall::default()
    };
    let tile = Tile { step: 8, per_column: 4, rank: 0, per_row: 2, rows: 2, values: vec![1.0; 12] };
    Corpus::default()
        .with("steps", steps.encode())
        .with("later steps", later.encode())
        .with("waterfall", waterfall.encode())
        .with("tile", tile.encode())
}

fn picture(draw: impl FnOnce(&mut Frame<'_>)) {
    let mut pixels = vec![CLEAR; SIZE.0 * SIZE.1];
    draw(&mut Frame::new(&mut pixels, SIZE.0, SIZE.1));
}

fn has_axis(span: Span) -> Verdict {
    for marks in [ticks::nanos(span, 8), ticks::whole(span, 8), ticks::rates(span, 8)] {
        ensure(marks.len() <= 40, || format!("{} marks on {span:?}", marks.len()))?;
        let longest = marks.iter().map(|mark| mark.label.len()).max().unwrap_or(0);
        ensure(longest < 400, || format!("a label of {longest} bytes on {span:?}"))?;
    }
    Ok(())
}

fn keeps(kept: &mut Steps, frame: &StepColumns) -> Verdict {
    let count = kept.step.len();
    if !kept.apply(frame) {
        return ensure(kept.step.len() <= count, || "a refused frame is stored".into());
    }
    let rows = kept.step.len();
    ensure(kept.step.is_sorted_by(|earlier, later| earlier < later), || "stored steps do not ascend".into())?;
    ensure(rows <= MAX_STEPS, || format!("{rows} steps are stored"))?;
    let columns = [&kept.step_nanos, &kept.throughput, &kept.overlap];
    let are_equal = columns.into_iter().chain(&kept.parts).all(|column| column.len() == rows);
    ensure(are_equal && kept.flags.len() == rows, || "columns differ in length".into())?;
    let (view, top) = (kept.bounds(), line::largest(&kept.step_nanos, 0..rows));
    let shown = kept.rows_in(view);
    ensure(shown.end <= rows, || format!("{shown:?} of {rows} rows are shown"))?;
    picture(|frame| {
        let (step, values) = (kept.step.as_slice(), kept.step_nanos.as_slice());
        line::draw(frame, &line::Line { step, values, view, top, color: !0, thickness: 2.0 });
    });
    picture(|frame| {
        let top = area::largest(&kept.parts, 0..rows);
        area::draw(
            frame,
            &area::Area {
                step: &kept.step,
                parts: &kept.parts,
                colors: &[!0; wire::live::Part::COUNT],
                view,
                top,
            },
        );
    });
    has_axis(view)?;
    has_axis(Span::new(0.0, f64::from(ticks::ceiling(f64::from(top)) as f32)))?;
    let sorted = kept.sorted_step_nanos();
    ensure(sorted.is_sorted(), || "step times are not sorted".into())
}

fn draws(waterfall: &Waterfall) -> Verdict {
    if !waterfall.is_consistent() {
        return Ok(());
    }
    let gantt = Gantt::new(waterfall);
    let rows = Span::new(0.0, gantt.rows() as f64);
    for time in [Span::new(0.0, waterfall.span_nanos), Span::new(1.0, 9.0)] {
        picture(|frame| gantt.draw(frame, waterfall, View { time, rows }));
        has_axis(time)?;
    }
    let length = units::nanos(waterfall.span_nanos).len();
    ensure(length < 400, || format!("a length of {length} bytes"))
}

fn colors(tile: &Tile) {
    let steps_view = Span::new(tile.step as f64, tile.step as f64 + 8.0);
    let ranks_view = Span::new(f64::from(tile.rank), f64::from(tile.rank) + 4.0);
    if tile.is_consistent() {
        picture(|frame| {
            let (reduce, scale) = (Reduce::Max, (0.0, 9.0));
            let map = heatmap::Heatmap {
                steps_view,
                ranks_view,
                covered: None,
                reduce,
                scale,
                colors: &[!0; 256],
                unknown: !0,
            };
            heatmap::draw(frame, tile, &map);
        });
    }
}

#[test]
fn frames_are_stored_and_drawn() {
    let version = StepRanks::default().encode()[4..6].to_vec();
    let first = corpus();
    let (_, snapshot) = first.entries().next().expect("the corpus has entries");
    let snapshot = StepColumns::decode(snapshot).expect("the entry is a frame");
    first.check("page", 20_000, |bytes, choice| {
        let mut bytes = bytes.to_vec();
        if bytes.len() >= 8 {
            bytes[..4].copy_from_slice(b"PCLV");
            bytes[4..6].copy_from_slice(&version);
        }
        let mut kept = Steps::default();
        if choice.is_multiple_of(2) {
            keeps(&mut kept, &snapshot)?;
        }
        if let Ok(frame) = StepColumns::decode(&bytes) {
            keeps(&mut kept, &frame)?;
            keeps(&mut kept, &frame)?;
        }
        if let Ok(frame) = Waterfall::decode(&bytes) {
            draws(&frame)?;
        }
        Tile::decode(&bytes).iter().for_each(colors);
        Ok(())
    });
}
