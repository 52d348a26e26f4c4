//! The binary format of frames: scalars and columns in sequence, read in the order in which they were written.

use super::{FrameError, Part};

const MAGIC: [u8; 4] = *b"PCLV";
/// The version of the live format. Every change to a source of this crate changes it, because the layout of a frame or
/// the shape of a view may have changed (`build.rs`). A dashboard of another version is asked to reload.
const LIVE_VERSION: u16 = match u16::from_str_radix(env!("PACELINE_LIVE_VERSION"), 10) {
    Ok(version) => version,
    Err(_) => panic!("build.rs writes a number"),
};

macro_rules! frame_codec {
    ($kind:expr, $type:ident { $($field:ident: $method:ident),+ $(,)? }) => {
        impl $type {
            /// Encodes the frame.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let mut out = $crate::live::frame::FrameWriter::new($kind);
                $(out.$method(&self.$field);)+
                out.bytes
            }

            /// Decodes a frame.
            ///
            /// # Errors
            /// Returns an error if the bytes are another kind of frame or another version, or if they are too short or
            /// too long.
            pub fn decode(bytes: &[u8]) -> Result<Self, $crate::live::FrameError> {
                let mut input = $crate::live::frame::FrameReader::new(bytes, $kind)?;
                let frame = Self { $($field: input.$method()?),+ };
                input.end()?;
                Ok(frame)
            }
        }
    };
}

pub(super) use frame_codec;

pub(super) struct FrameWriter {
    pub(super) bytes: Vec<u8>,
}

impl FrameWriter {
    pub(super) fn new(kind: u16) -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&LIVE_VERSION.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        Self { bytes }
    }

    pub(super) fn flag(&mut self, value: &bool) {
        self.bytes.push(u8::from(*value));
    }

    pub(super) fn u8s(&mut self, values: &[u8]) {
        self.u32(&(values.len() as u32));
        self.bytes.extend_from_slice(values);
    }

    pub(super) fn parts(&mut self, parts: &[Vec<f32>; Part::COUNT]) {
        parts.iter().for_each(|part| self.f32s(part));
    }
}

pub(super) struct FrameReader<'a> {
    pub(super) rest: &'a [u8],
}

pub(super) const TRUNCATED: FrameError = FrameError("it ends too early");
pub(super) const FOLLOWED: FrameError = FrameError("bytes follow its end");

impl<'a> FrameReader<'a> {
    pub(super) fn new(bytes: &'a [u8], kind: u16) -> Result<Self, FrameError> {
        let (head, rest) = bytes.split_at_checked(8).ok_or(TRUNCATED)?;
        if head[..4] != MAGIC {
            return Err(FrameError("it does not start with \"PCLV\""));
        }
        if head[4..6] != LIVE_VERSION.to_le_bytes() {
            return Err(FrameError::OTHER_VERSION);
        }
        if head[6..8] != kind.to_le_bytes() {
            return Err(FrameError("it is another kind of frame"));
        }
        Ok(Self { rest })
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn end(&self) -> Result<(), FrameError> {
        if self.rest.is_empty() { Ok(()) } else { Err(FOLLOWED) }
    }

    pub(super) fn flag(&mut self) -> Result<bool, FrameError> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(FrameError("a flag is neither 0 nor 1")),
        }
    }

    pub(super) fn u8s(&mut self) -> Result<Vec<u8>, FrameError> {
        let count = self.u32()? as usize;
        Ok(self.take(count)?.to_vec())
    }

    pub(super) fn parts(&mut self) -> Result<[Vec<f32>; Part::COUNT], FrameError> {
        let mut parts: [Vec<f32>; Part::COUNT] = Default::default();
        for part in &mut parts {
            *part = self.f32s()?;
        }
        Ok(parts)
    }
}

macro_rules! number_columns {
    ($($one:ident, $many:ident: $type:ty;)+) => {
        #[allow(dead_code, reason = "one method per number type, whether or not a frame uses it yet")]
        impl FrameWriter {
            $(
                pub(super) fn $one(&mut self, value: &$type) {
                    self.bytes.extend_from_slice(&value.to_le_bytes());
                }

                pub(super) fn $many(&mut self, values: &[$type]) {
                    self.u32(&(values.len() as u32));
                    values.iter().for_each(|value| self.$one(value));
                }
            )+
        }

        #[allow(dead_code, reason = "one method per number type, whether or not a frame uses it yet")]
        impl FrameReader<'_> {
            $(
                pub(super) fn $one(&mut self) -> Result<$type, FrameError> {
                    let bytes = self.take(size_of::<$type>())?;
                    Ok(<$type>::from_le_bytes(bytes.try_into().map_err(|_| TRUNCATED)?))
                }

                pub(super) fn $many(&mut self) -> Result<Vec<$type>, FrameError> {
                    const WIDTH: usize = size_of::<$type>();
                    let count = self.u32()? as usize;
                    let bytes = self.take(count.checked_mul(WIDTH).ok_or(TRUNCATED)?)?;
                    let (chunks, _) = bytes.as_chunks::<WIDTH>();
                    Ok(chunks.iter().map(|chunk| <$type>::from_le_bytes(*chunk)).collect())
                }
            )+
        }
    };
}

number_columns! {
    u32, u32s: u32;
    u64, u64s: u64;
    f32, f32s: f32;
    f64, f64s: f64;
}
