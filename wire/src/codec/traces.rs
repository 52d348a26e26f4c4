//! The summary of a rank's trace.

use super::primitive::{Reader, Writer};
use super::{DecodeError, read_list};
use crate::traces::{MAX_TRACE_ROWS, TraceRowKind, TraceSum, TraceSummary};

pub(super) fn write(out: &mut Writer, summary: &TraceSummary) {
    out.varint(u64::from(summary.steps));
    out.varint(summary.step_nanos);
    let rows = summary.rows.iter().take(MAX_TRACE_ROWS);
    out.varint(rows.len() as u64);
    for TraceSum { kind, name, nanos, calls, gap_nanos } in rows {
        out.u8(*kind as u8);
        out.text(name);
        [*nanos, *calls, *gap_nanos].into_iter().for_each(|field| out.varint(field));
    }
}

pub(super) fn read(input: &mut Reader<'_>) -> Result<TraceSummary, DecodeError> {
    let (steps, step_nanos) = (input.varint_u32("traced steps")?, input.varint("traced time")?);
    let rows = read_list(input, "rows of a trace", MAX_TRACE_ROWS as u64, |input| {
        Ok(TraceSum {
            kind: input.tag("kind of a row", &TraceRowKind::ALL)?,
            name: input.text("name of a row")?,
            nanos: input.varint("self time")?,
            calls: input.varint("calls")?,
            gap_nanos: input.varint("gap")?,
        })
    })?;
    Ok(TraceSummary { steps, step_nanos, rows })
}
