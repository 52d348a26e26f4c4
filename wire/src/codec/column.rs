//! The format of a column: the offset of each value from the smallest, in as few bits as the largest offset needs.
//!
//! Offsets are packed bit by bit. A batch of 50 ms has about six buckets, too few for a compressor to find the
//! remaining redundancy. Low bits that are zero in all offsets are left out: sizes are multiples of rows, and the signs
//! of differences are mostly alike.

use super::DecodeError;
use super::primitive::{Reader, Writer};

/// The number added to the width in a column of shifted offsets, which have at most 63 bits.
const SHIFTED: u8 = 64;
/// The marker of a column in which all values are zero: most jobs have one communicator and one source of times.
const ZEROS: u8 = 255;

/// Maps small negative and positive numbers to small unsigned ones.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// Writes `values`. The reader must know their number.
pub(super) fn write(out: &mut Writer, values: &[u64]) {
    let least = values.iter().copied().min().unwrap_or(0);
    let set = values.iter().fold(0, |set, value| set | (value - least));
    let shift = if set == 0 { 0 } else { set.trailing_zeros() as u8 };
    let width = (u64::BITS - (set >> shift).leading_zeros()) as u8;
    if set == 0 && least == 0 {
        return out.u8(ZEROS);
    }
    if shift == 0 {
        out.u8(width);
    } else {
        out.u8(SHIFTED + width);
        out.u8(shift);
    }
    out.varint(least);
    pack(out.raw(), width, values.iter().map(|value| (value - least) >> shift));
}

/// Reads `rows` values.
pub(super) fn read(input: &mut Reader<'_>, what: &'static str, rows: usize) -> Result<Vec<u64>, DecodeError> {
    let at = input.position();
    let form = input.u8(what)?;
    if form == ZEROS {
        return Ok(vec![0; rows]);
    }
    let (width, shift) = if form > SHIFTED { (form - SHIFTED, input.u8(what)?) } else { (form, 0) };
    if u32::from(width) + u32::from(shift) > u64::BITS {
        return Err(DecodeError::Value { what, at, found: u64::from(form) });
    }
    let least = input.varint(what)?;
    let packed = input.bytes(what, (usize::from(width) * rows).div_ceil(8))?;
    let mut values = Vec::with_capacity(rows);
    let mut too_large = None;
    unpack(packed, width, rows, |offset| {
        let value = least.checked_add(offset << shift);
        too_large = too_large.or(value.is_none().then_some(offset));
        values.push(value.unwrap_or_default());
    });
    match too_large {
        None => Ok(values),
        Some(found) => Err(DecodeError::Value { what, at, found }),
    }
}

/// Writes a column of differences. The first is written separately, because it is the whole value from which the other
/// differences start.
pub(super) fn write_differences(out: &mut Writer, values: &[u64]) {
    if let Some((&first, others)) = values.split_first() {
        out.varint(first);
        if !others.is_empty() {
            write(out, others);
        }
    }
}

/// Reads `rows` differences; `rows` must be at least 1.
pub(super) fn read_differences(
    input: &mut Reader<'_>,
    what: &'static str,
    rows: usize,
) -> Result<Vec<u64>, DecodeError> {
    let mut values = vec![input.varint(what)?];
    if rows > 1 {
        values.extend(read(input, what, rows - 1)?);
    }
    Ok(values)
}

/// Appends the lowest `width` bits of each offset, low bits first.
fn pack(out: &mut Vec<u8>, width: u8, offsets: impl Iterator<Item = u64>) {
    let (mut waiting, mut filled) = (0_u128, 0);
    for offset in offsets {
        waiting |= u128::from(offset) << filled;
        filled += u32::from(width);
        if filled >= u64::BITS {
            out.extend_from_slice(&(waiting as u64).to_le_bytes());
            waiting >>= u64::BITS;
            filled -= u64::BITS;
        }
    }
    out.extend_from_slice(&waiting.to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// Passes `count` offsets to `found`. `packed` must hold at least that many.
fn unpack(packed: &[u8], width: u8, count: usize, mut found: impl FnMut(u64)) {
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let (mut waiting, mut filled) = (0_u128, 0);
    let mut words = packed.chunks(8);
    for _ in 0..count {
        if filled < u32::from(width)
            && let Some(word) = words.next()
        {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            waiting |= u128::from(u64::from_le_bytes(bytes)) << filled;
            filled += u64::BITS;
        }
        found(waiting as u64 & mask);
        waiting >>= width;
        filled = filled.saturating_sub(u32::from(width));
    }
}
