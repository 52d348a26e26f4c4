//! The stacks of a rank.

use super::primitive::{Reader, Writer};
use super::{DecodeError, read_list};
use crate::clock::MonoNanos;
use crate::event::SpanKind;
use crate::stacks::{
    Frame, LongStep, MAX_DEPTH, MAX_FRAMES, MAX_STACKS, MAX_THREADS, Profile, SpanLine, Stack, Stacks,
    StacksOutcome, ThreadRole, ThreadStacks,
};

pub(super) fn write(out: &mut Writer, stacks: &Stacks) {
    out.varint(stacks.request);
    out.i64(stacks.from.0);
    out.i64(stacks.until.0);
    match &stacks.outcome {
        StacksOutcome::Refused { reason } => {
            out.u8(0);
            out.text(reason);
        }
        StacksOutcome::Sampled(profile) => {
            out.u8(1);
            write_profile(out, profile);
        }
    }
}

pub(super) fn write_long_step(out: &mut Writer, long: &LongStep) {
    out.i64(long.begun.0);
    out.varint(long.usual_nanos);
    out.i64(long.from.0);
    out.i64(long.until.0);
    write_profile(out, &long.profile);
}

pub(super) fn write_line(out: &mut Writer, line: &SpanLine) {
    out.u8(line.kind as u8);
    write_frame(out, &line.frame);
}

fn write_frame(out: &mut Writer, Frame { function, file, line }: &Frame) {
    out.text(function);
    out.text(file);
    out.varint(u64::from(*line));
}

fn write_profile(out: &mut Writer, profile: &Profile) {
    out.varint(profile.torn);
    let frames = profile.frames.iter().take(MAX_FRAMES);
    out.varint(frames.len() as u64);
    frames.for_each(|frame| write_frame(out, frame));
    let threads = profile.threads.iter().take(MAX_THREADS);
    out.varint(threads.len() as u64);
    for thread in threads {
        out.u8(thread.role as u8);
        out.text(&thread.name);
        out.varint(u64::from(thread.processes));
        out.varint(thread.samples);
        let stacks = thread.stacks.iter().take(MAX_STACKS);
        out.varint(stacks.len() as u64);
        for stack in stacks {
            out.varint(stack.count);
            let frames = stack.frames.iter().take(MAX_DEPTH);
            out.varint(frames.len() as u64);
            frames.for_each(|frame| out.varint(u64::from(*frame)));
        }
    }
}

pub(super) fn read(input: &mut Reader<'_>) -> Result<Stacks, DecodeError> {
    let request = input.varint("stacks request")?;
    let (from, until) = (MonoNanos(input.i64("stacks")?), MonoNanos(input.i64("stacks")?));
    let outcome = if input.tag("stacks outcome", &[false, true])? {
        StacksOutcome::Sampled(read_profile(input)?)
    } else {
        StacksOutcome::Refused { reason: input.text("stacks reason")? }
    };
    Ok(Stacks { request, from, until, outcome })
}

pub(super) fn read_long_step(input: &mut Reader<'_>) -> Result<LongStep, DecodeError> {
    let begun = MonoNanos(input.i64("long step")?);
    let usual_nanos = input.varint("usual length of steps")?;
    let (from, until) = (MonoNanos(input.i64("long step")?), MonoNanos(input.i64("long step")?));
    Ok(LongStep { begun, usual_nanos, from, until, profile: read_profile(input)? })
}

pub(super) fn read_line(input: &mut Reader<'_>) -> Result<SpanLine, DecodeError> {
    Ok(SpanLine { kind: input.tag("kind of a line", &SpanKind::ALL)?, frame: read_frame(input)? })
}

fn read_frame(input: &mut Reader<'_>) -> Result<Frame, DecodeError> {
    let (function, file) = (input.text("function")?, input.text("file")?);
    Ok(Frame { function, file, line: narrow(input, "line")? })
}

fn read_profile(input: &mut Reader<'_>) -> Result<Profile, DecodeError> {
    let torn = input.varint("torn samples")?;
    let frames = read_list(input, "frames", MAX_FRAMES as u64, read_frame)?;
    let known = frames.len() as u64;
    let threads = read_list(input, "threads", MAX_THREADS as u64, |input| {
        Ok(ThreadStacks {
            role: input.tag("thread role", &ThreadRole::ALL)?,
            name: input.text("thread name")?,
            processes: narrow(input, "processes")?,
            samples: input.varint("samples")?,
            stacks: read_list(input, "stacks", MAX_STACKS as u64, |input| read_stack(input, known))?,
        })
    })?;
    Ok(Profile { frames, threads, torn })
}

fn read_stack(input: &mut Reader<'_>, known: u64) -> Result<Stack, DecodeError> {
    let count = input.varint("stack count")?;
    let frames = read_list(input, "stack", MAX_DEPTH as u64, |input| {
        let at = input.position();
        let found = input.varint("frame")?;
        let frame = u32::try_from(found).ok().filter(|_| found < known);
        frame.ok_or(DecodeError::Value { what: "frame", at, found })
    })?;
    Ok(Stack { count, frames })
}

fn narrow(input: &mut Reader<'_>, what: &'static str) -> Result<u32, DecodeError> {
    let at = input.position();
    let found = input.varint(what)?;
    u32::try_from(found).map_err(|_| DecodeError::Value { what, at, found })
}
