//! A layout of parameters in buckets.

use super::primitive::{Reader, Writer};
use super::{DecodeError, read_list};
use crate::ids::{Bucket, Comm};
use crate::layout::{Layout, LayoutBucket, MAX_PARAMETERS};

/// The largest number of buckets in a layout, and of parameters in a bucket.
const MAX_ITEMS: u64 = MAX_PARAMETERS as u64;

pub(super) fn write(out: &mut Writer, layout: &Layout) {
    out.varint(u64::from(layout.comm.0));
    out.varint(u64::from(layout.generation));
    out.varint(layout.buckets.len() as u64);
    for bucket in &layout.buckets {
        out.varint(u64::from(bucket.bucket.0));
        out.varint(bucket.bytes);
        out.varint(bucket.parameters.len() as u64);
        bucket.parameters.iter().for_each(|name| out.text(name));
        out.text(&bucket.dtype);
        out.varint(bucket.elements.len() as u64);
        bucket.elements.iter().for_each(|&elements| out.varint(elements));
    }
    out.varint(u64::from(layout.module));
    out.text(&layout.class);
    out.u64(layout.digest);
    out.u8(u8::from(layout.since.is_some()));
    layout.since.into_iter().for_each(|first_step| out.varint(first_step));
    out.u8(u8::from(layout.unused.is_some()));
    if let Some(unused) = &layout.unused {
        out.varint(unused.len() as u64);
        unused.iter().for_each(|&at| out.varint(u64::from(at)));
    }
}

pub(super) fn read(input: &mut Reader<'_>) -> Result<Layout, DecodeError> {
    let mut layout = Layout {
        comm: Comm(input.varint_u32("communicator")?),
        generation: input.varint_u32("generation")?,
        buckets: read_list(input, "layout buckets", MAX_ITEMS, read_bucket)?,
        module: input.varint_u32("module")?,
        class: input.text("class")?,
        digest: input.u64("digest")?,
        since: None,
        unused: None,
    };
    if input.tag("first step", &[false, true])? {
        layout.since = Some(input.varint("first step")?);
    }
    if input.tag("unused parameters", &[false, true])? {
        layout.unused = Some(read_unused(input, layout.count())?);
    }
    Ok(layout)
}

fn read_bucket(input: &mut Reader<'_>) -> Result<LayoutBucket, DecodeError> {
    let (bucket, bytes) = (Bucket(input.varint_u32("bucket")?), input.varint("bucket bytes")?);
    let parameters = read_list(input, "parameters", MAX_ITEMS, |input| input.text("parameter name"))?;
    let dtype = input.text("element type")?;
    let at = input.position();
    let elements = read_list(input, "elements", MAX_ITEMS, |input| input.varint("elements"))?;
    match elements.len() {
        found if found != parameters.len() && found != 0 => {
            Err(DecodeError::Value { what: "number of element counts", at, found: found as u64 })
        }
        _ => Ok(LayoutBucket { bucket, bytes, parameters, elements, dtype }),
    }
}

/// Reads the places of unused parameters, in ascending order, of `count` parameters.
fn read_unused(input: &mut Reader<'_>, count: usize) -> Result<Vec<u32>, DecodeError> {
    let at = input.position();
    let unused =
        read_list(input, "unused parameters", MAX_ITEMS, |input| input.varint_u32("unused parameter"))?;
    let is_ascending = unused.windows(2).all(|two| two[0] < two[1]);
    match unused.last() {
        Some(&last) if last as usize >= count || !is_ascending => {
            Err(DecodeError::Value { what: "unused parameter", at, found: last.into() })
        }
        _ => Ok(unused),
    }
}
