//! One column: the offset of each value from the smallest, in as few byte planes as the largest needs.

use super::DecodeError;
use super::primitive::{Reader, Writer};

/// Maps small negative and positive numbers to small unsigned ones.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// Writes `values`; the reader must know how many there are.
pub(super) fn write(out: &mut Writer, values: &[u64]) {
    let base = values.iter().copied().min().unwrap_or(0);
    let span = values.iter().copied().max().unwrap_or(0) - base;
    let width = match span {
        0 => 0_u8,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    out.varint(base);
    out.u8(width);
    for plane in 0..u32::from(width) {
        out.raw().extend(values.iter().map(|value| ((value - base) >> (8 * plane)) as u8));
    }
}

/// Reads `rows` values.
pub(super) fn read(input: &mut Reader<'_>, what: &'static str, rows: usize) -> Result<Vec<u64>, DecodeError> {
    let base = input.varint(what)?;
    let at = input.position();
    let width = input.u8(what)?;
    if !matches!(width, 0 | 1 | 2 | 4 | 8) {
        return Err(DecodeError::Value { what, at, found: u64::from(width) });
    }
    let planes = input.bytes(what, rows * usize::from(width))?;
    let mut values = vec![base; rows];
    for (plane, bytes) in planes.chunks_exact(rows.max(1)).enumerate() {
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = value.wrapping_add(u64::from(*byte) << (8 * plane));
        }
    }
    Ok(values)
}
