//! A layout of parameters in buckets. Version 9 has more in it.

use super::primitive::{Reader, Writer};
use super::{DecodeError, read_list};
use crate::ids::{Bucket, Comm};
use crate::layout::{Layout, LayoutBucket, MAX_PARAMETERS};

/// The largest number of buckets in a layout, and of parameters in a bucket.
const MAX_ITEMS: u64 = MAX_PARAMETERS as u64;

/// Writes a layout, with all of it if it `has_more` than version 1.
pub(super) fn write(out: &mut Writer, layout: &Layout, has_more: bool) {
    out.varint(u64::from(layout.comm.0));
    out.varint(u64::from(layout.generation));
    out.varint(layout.buckets.len() as u64);
    for bucket in &layout.buckets {
        out.varint(u64::from(bucket.bucket.0));
        out.varint(bucket.bytes);
        out.varint(bucket.parameters.len() as u64);
        bucket.parameters.iter().for_each(|name| out.text(name));
        if has_more {
            out.text(&bucket.dtype);
            out.varint(bucket.elements.len() as u64);
            bucket.elements.iter().for_each(|&elements| out.varint(elements));
        }
    }
    if has_more {
        out.varint(u64::from(layout.module));
        out.text(&layout.class);
        out.u64(layout.digest);
        out.u8(u8::from(layout.since.is_some()));
        layout.since.into_iter().for_each(|since| out.varint(since));
        out.u8(u8::from(layout.unused.is_some()));
        if let Some(unused) = &layout.unused {
            out.varint(unused.len() as u64);
            unused.iter().for_each(|&at| out.varint(u64::from(at)));
        }
    }
}

pub(super) fn read(input: &mut Reader<'_>, has_more: bool) -> Result<Layout, DecodeError> {
    let mut layout = Layout {
        comm: Comm(input.varint_u32("communicator")?),
        generation: input.varint_u32("generation")?,
        buckets: read_list(input, "layout buckets", MAX_ITEMS, |input| read_bucket(input, has_more))?,
        ..Layout::default()
    };
    if has_more {
        layout.module = input.varint_u32("module")?;
        layout.class = input.text("class")?;
        layout.digest = input.u64("digest")?;
        if input.tag("first step", &[false, true])? {
            layout.since = Some(input.varint("first step")?);
        }
        if input.tag("unused parameters", &[false, true])? {
            layout.unused = Some(read_unused(input, layout.count())?);
        }
    }
    Ok(layout)
}

fn read_bucket(input: &mut Reader<'_>, has_more: bool) -> Result<LayoutBucket, DecodeError> {
    let mut bucket = LayoutBucket {
        bucket: Bucket(input.varint_u32("bucket")?),
        bytes: input.varint("bucket bytes")?,
        parameters: read_list(input, "parameters", MAX_ITEMS, |input| input.text("parameter name"))?,
        ..LayoutBucket::default()
    };
    if has_more {
        bucket.dtype = input.text("element type")?;
        let at = input.position();
        bucket.elements = read_list(input, "elements", MAX_ITEMS, |input| input.varint("elements"))?;
        let (found, expected) = (bucket.elements.len(), bucket.parameters.len());
        if found != expected && found != 0 {
            return Err(DecodeError::Value { what: "number of element counts", at, found: found as u64 });
        }
    }
    Ok(bucket)
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
