//! Frames that arrive in pieces.

use bytes::{Bytes, BytesMut};
use tokio::sync::OwnedSemaphorePermit;
use wire::batch::MAX_WIRE_BYTES;

use super::room::kib;
use super::{Intake, Refusal};

/// A frame of which a part has arrived. Memory is reserved for that part: a sender that only declares a length takes none.
pub struct Arriving<'a> {
    intake: &'a Intake,
    bytes: BytesMut,
    room: OwnedSemaphorePermit,
}

impl Intake {
    /// Begins to receive a frame of at least so many bytes.
    ///
    /// # Errors
    /// Returns an error if that is more than a batch may have, or if the memory is used up.
    pub fn receive(&self, at_least: u64) -> Result<Arriving<'_>, Refusal> {
        if at_least > MAX_WIRE_BYTES as u64 {
            return Err(self.counted(Refusal::FrameTooLarge));
        }
        let room = self.room.take_now(0).map_err(|full| self.counted(full))?;
        Ok(Arriving { intake: self, bytes: BytesMut::new(), room })
    }
}

impl Arriving<'_> {
    /// Adds the next piece. Waits for memory if there is none.
    ///
    /// # Errors
    /// Returns an error if the frame becomes larger than a batch may be, or if no memory becomes free in time.
    pub async fn add(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        let length = self.bytes.len() + piece.len();
        if length > MAX_WIRE_BYTES {
            return Err(self.intake.counted(Refusal::FrameTooLarge));
        }
        let more = kib(length) as usize - self.room.num_permits();
        let more = self.intake.room.take(more << 10).await;
        self.room.merge(more.map_err(|full| self.intake.counted(full))?);
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Returns the frame, with the memory that is reserved for it.
    pub fn finish(self) -> (Bytes, OwnedSemaphorePermit) {
        (self.bytes.freeze(), self.room)
    }
}
