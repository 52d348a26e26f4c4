//! Files that a server receives. A file is read on another thread while it arrives, so that no more of it than a few pieces is
//! in memory.

use std::io;

use bytes::Bytes;
use import::{Source, Unreadable};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::Files;
use super::places::Place;

/// The largest number of files.
const MAX_FILES: usize = 4_096;
/// The largest size of all files as sent, in bytes: 1,024 traces of 64 MiB.
const MAX_BYTES: u64 = 64 << 30;
/// The largest number of kernels, copies and launches of the files before the last one. They take at most 64 bytes each, so
/// all take at most 1 GiB, and the last file takes as much as [`import::read`] allows for one.
const MAX_HELD: usize = 16_000_000;
/// The number of pieces between the connection and the reading thread. A piece is at most the buffer of a connection, so
/// they take at most 1 MiB.
const PIECES: usize = 16;

/// The error that more arrives than one import may have.
#[derive(Debug, thiserror::Error)]
pub enum TooLarge {
    /// One file more.
    #[error("there are more than {MAX_FILES} files")]
    Files,
    /// A file after those that fill the memory.
    #[error(
        "the files before {0} have more than {MAX_HELD} kernels and launches: import fewer ranks or fewer steps"
    )]
    Held(String),
    /// One byte more.
    #[error("the files have more than {} GiB: import fewer at a time", MAX_BYTES >> 30)]
    Bytes,
}

/// The files of an import that arrive one after another.
pub struct ArrivingFiles<'a> {
    files: Files,
    place: &'a Place,
    bytes_left: u64,
}

/// A file that arrives. If it is dropped before its end, so is what was read of it.
pub struct ArrivingFile<'a, 'b> {
    all: &'b mut ArrivingFiles<'a>,
    name: String,
    /// `None` once the thread has stopped, which it does before the end of a file that it cannot read.
    pieces: Option<mpsc::Sender<Bytes>>,
    reading: JoinHandle<Result<Source, Unreadable>>,
}

impl<'a> ArrivingFiles<'a> {
    /// Begins with no file. The place shows how far the import is.
    #[must_use]
    pub fn new(place: &'a Place) -> Self {
        Self { files: Files::default(), place, bytes_left: MAX_BYTES }
    }

    /// Begins the next file.
    ///
    /// # Errors
    /// Returns an error if there is no room for another file.
    pub fn begin(&mut self, name: String) -> Result<ArrivingFile<'a, '_>, TooLarge> {
        if self.files.count() == MAX_FILES {
            return Err(TooLarge::Files);
        }
        if self.files.held() > MAX_HELD {
            return Err(TooLarge::Held(name));
        }
        self.place.begin_file(Some(&name));
        let (pieces, arriving) = mpsc::channel(PIECES);
        let file = name.clone();
        let reading = spawn_blocking(move || import::read(&file, Arriving { arriving, piece: Bytes::new() }));
        Ok(ArrivingFile { all: self, name, pieces: Some(pieces), reading })
    }

    /// Returns the files, of which no more arrive.
    #[must_use]
    pub fn end(self) -> Files {
        self.place.begin_file(None);
        self.files
    }
}

impl ArrivingFile<'_, '_> {
    /// Passes a piece of the file on to its thread.
    ///
    /// # Errors
    /// Returns an error if all files together are too large.
    pub async fn push(&mut self, piece: Bytes) -> Result<(), TooLarge> {
        self.all.place.arrive(piece.len());
        let left = self.all.bytes_left.checked_sub(piece.len() as u64);
        self.all.bytes_left = left.ok_or(TooLarge::Bytes)?;
        if let Some(pieces) = &self.pieces
            && pieces.send(piece).await.is_err()
        {
            self.pieces = None;
        }
        Ok(())
    }

    /// Adds the file to the import. If it cannot be read, it is skipped.
    ///
    /// # Errors
    /// Returns an error if the thread that reads it failed.
    pub async fn end(self) -> Result<(), JoinError> {
        drop(self.pieces);
        let read = self.reading.await?;
        self.all.files.add(&self.name, read);
        Ok(())
    }
}

/// A file that arrives, for a thread that may block.
struct Arriving {
    arriving: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl io::Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.arriving.blocking_recv() {
                Some(piece) => self.piece = piece,
                // Also if the connection broke. The import then fails, and what was read is dropped.
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.piece.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}
