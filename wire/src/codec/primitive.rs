//! Reads and writes integers and texts within limits. Only this module touches raw bytes.

use super::{DecodeError, MAX_LIST_BYTES, MAX_TEXT_BYTES};

/// A buffer to which primitive values are appended.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn raw(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends an integer in LEB128: seven bits per byte, the lowest bits first.
    pub(super) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Appends a text, cut at a character boundary to the length that a reader accepts.
    pub(super) fn text(&mut self, text: &str) {
        let mut end = text.len().min(MAX_TEXT_BYTES as usize);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.varint(end as u64);
        self.bytes.extend_from_slice(&text.as_bytes()[..end]);
    }
}

/// A reader of primitive values, each within its limit.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The memory that the lists and texts read so far take, in bytes.
    held: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, held: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(super) fn bytes(&mut self, what: &'static str, needed: usize) -> Result<&'a [u8], DecodeError> {
        let left = self.rest().len();
        if needed > left {
            return Err(DecodeError::Truncated { what, at: self.at, needed, left });
        }
        let found = &self.bytes[self.at..self.at + needed];
        self.at += needed;
        Ok(found)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(what, N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(what)?[0])
    }

    #[cfg(feature = "compress")]
    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    #[cfg(feature = "compress")]
    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(super) fn i64(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }

    pub(super) fn varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let at = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Value { what, at, found: value })
    }

    pub(super) fn varint_u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        let found = self.varint(what)?;
        u32::try_from(found).map_err(|_| DecodeError::TooLarge { what, found, most: u64::from(u32::MAX) })
    }

    /// Reads a count of items that take at least one byte each.
    pub(super) fn count(&mut self, what: &'static str, most: u64) -> Result<usize, DecodeError> {
        let found = self.varint(what)?;
        let most = most.min(self.rest().len() as u64);
        if found > most {
            return Err(DecodeError::TooLarge { what, found, most });
        }
        Ok(found as usize)
    }

    /// Counts the memory that a list or a text takes before it is allocated. An empty text takes one byte here and 24
    /// bytes in memory.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.held = self.held.saturating_add(bytes);
        if self.held > MAX_LIST_BYTES {
            let (found, most) = (self.held as u64, MAX_LIST_BYTES as u64);
            return Err(DecodeError::TooLarge { what: "memory for lists and texts", found, most });
        }
        Ok(())
    }

    pub(super) fn text(&mut self, what: &'static str) -> Result<String, DecodeError> {
        let length = self.varint(what)?;
        if length > MAX_TEXT_BYTES {
            return Err(DecodeError::TooLarge { what, found: length, most: MAX_TEXT_BYTES });
        }
        self.hold(length as usize)?;
        let at = self.at;
        let bytes = self.bytes(what, length as usize)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Text { what, at })
    }

    /// Reads one byte as an index into `all`.
    pub(super) fn tag<T: Copy>(&mut self, what: &'static str, all: &[T]) -> Result<T, DecodeError> {
        let at = self.at;
        let found = self.u8(what)?;
        all.get(usize::from(found)).copied().ok_or(DecodeError::Value { what, at, found: u64::from(found) })
    }
}
