//! Texts that ranks sent, escaped and shortened: they appear in lines and tables of reports.

use std::borrow::Cow;

use wire::batch::Hello;
use wire::layout::Layout;
use wire::stacks::{Frame, LongStep, Profile, SpanLine, Stacks, StacksOutcome};
use wire::traces::TraceSummary;
use wire::workload::{MAX_UNIT_BYTES, Workload};

use crate::printable::one_line;

/// Escapes the names, which appear in lines and tables of reports.
pub(super) fn with_printable_names(mut hello: Hello) -> Hello {
    for text in [&mut hello.name, &mut hello.host, &mut hello.sample_unit] {
        if let Cow::Owned(changed) = one_line(text) {
            *text = changed;
        }
    }
    hello
}

/// Escapes and shortens the unit, which appears in lines of reports.
pub(super) fn with_printable_unit(mut workload: Workload) -> Workload {
    let unit = one_line(&workload.sample_unit);
    workload.sample_unit = unit[..unit.floor_char_boundary(MAX_UNIT_BYTES)].to_owned();
    workload
}

/// Escapes the names of functions, files and threads, which appear in lines of reports.
pub(super) fn with_printable_frames(mut stacks: Stacks) -> Stacks {
    match &mut stacks.outcome {
        StacksOutcome::Refused { reason } => escape(reason),
        StacksOutcome::Sampled(profile) => escape_profile(profile),
    }
    stacks
}

pub(super) fn with_printable_stacks(mut long: LongStep) -> LongStep {
    escape_profile(&mut long.profile);
    long
}

pub(super) fn with_printable_line(mut line: SpanLine) -> SpanLine {
    escape_frame(&mut line.frame);
    line
}

fn escape_profile(profile: &mut Profile) {
    profile.threads.iter_mut().for_each(|thread| escape(&mut thread.name));
    profile.frames.iter_mut().for_each(escape_frame);
}

fn escape_frame(frame: &mut Frame) {
    escape(&mut frame.function);
    escape(&mut frame.file);
}

fn escape(text: &mut String) {
    if let Cow::Owned(changed) = one_line(text) {
        *text = changed;
    }
}

/// Escapes the names of operators, ranges and kernels, which appear in lines of reports.
pub(super) fn with_printable_rows(mut summary: TraceSummary) -> TraceSummary {
    for row in &mut summary.rows {
        if let Cow::Owned(changed) = one_line(&row.name) {
            row.name = changed;
        }
    }
    summary
}

/// Escapes the names of parameters and modules, which appear in lines of reports.
pub(super) fn with_printable_parameters(mut layout: Layout) -> Layout {
    let texts = layout.buckets.iter_mut();
    let texts = texts.flat_map(|bucket| bucket.parameters.iter_mut().chain([&mut bucket.dtype]));
    for text in texts.chain([&mut layout.class]) {
        if let Cow::Owned(changed) = one_line(text) {
            *text = changed;
        }
    }
    layout
}
