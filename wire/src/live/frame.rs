//! How frames look as bytes: scalars and columns, one after the other, each read as it was written.

use super::FrameError;

const MAGIC: [u8; 4] = *b"PCLV";
/// Changes whenever a frame's layout may have, or the shape of a view that goes as one: it is made of their
/// sources, so that no one has to remember it. A page of another version is told to reload.
const LIVE_VERSION: u16 = {
    const SOURCES: [&[u8]; 10] = [
        include_bytes!("../live.rs"),
        include_bytes!("frame.rs"),
        include_bytes!("tile.rs"),
        include_bytes!("view.rs"),
        include_bytes!("../views.rs"),
        include_bytes!("../views/comparison.rs"),
        include_bytes!("../views/scaling.rs"),
        include_bytes!("../views/what_if.rs"),
        include_bytes!("../batch.rs"),
        include_bytes!("../ids.rs"),
    ];
    // FNV-1a (Fowler, Noll, Vo), folded.
    let mut hash: u32 = 0x811c_9dc5;
    let mut source = 0;
    while source < SOURCES.len() {
        let mut at = 0;
        while at < SOURCES[source].len() {
            hash = (hash ^ SOURCES[source][at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        source += 1;
    }
    (hash >> 16) as u16 ^ hash as u16
};

macro_rules! frame_codec {
    ($kind:expr, $type:ident { $($field:ident: $method:ident),+ $(,)? }) => {
        impl $type {
            /// Writes the frame.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let mut out = $crate::live::frame::FrameWriter::new($kind);
                $(out.$method(&self.$field);)+
                out.bytes
            }

            /// Reads the frame.
            ///
            /// # Errors
            /// When the bytes are another frame, another version, or end too early.
            pub fn decode(bytes: &[u8]) -> Result<Self, $crate::live::FrameError> {
                let mut input = $crate::live::frame::FrameReader::new(bytes, $kind)?;
                Ok(Self { $($field: input.$method()?),+ })
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

    pub(super) fn parts(&mut self, parts: &[Vec<f32>; 8]) {
        parts.iter().for_each(|part| self.f32s(part));
    }
}

pub(super) struct FrameReader<'a> {
    pub(super) rest: &'a [u8],
}

pub(super) const TRUNCATED: FrameError = FrameError("it ends too early");

impl<'a> FrameReader<'a> {
    pub(super) fn new(bytes: &'a [u8], kind: u16) -> Result<Self, FrameError> {
        let (head, rest) = bytes.split_at_checked(8).ok_or(TRUNCATED)?;
        if head[..4] != MAGIC {
            return Err(FrameError("it does not start with the magic"));
        }
        if head[4..6] != LIVE_VERSION.to_le_bytes() {
            return Err(FrameError("the server is of another version: reload the page"));
        }
        if head[6..8] != kind.to_le_bytes() {
            return Err(FrameError("it is a frame of another kind"));
        }
        Ok(Self { rest })
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn flag(&mut self) -> Result<bool, FrameError> {
        Ok(self.take(1)?[0] != 0)
    }

    pub(super) fn u8s(&mut self) -> Result<Vec<u8>, FrameError> {
        let count = self.u32()? as usize;
        Ok(self.take(count)?.to_vec())
    }

    pub(super) fn parts(&mut self) -> Result<[Vec<f32>; 8], FrameError> {
        let mut parts: [Vec<f32>; 8] = Default::default();
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
