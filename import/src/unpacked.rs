//! The text of a file that is compressed by gzip, up to a length that traces have.
//!
//! A file of zeros is a thousandth of its text. Reading such a text to its end would take minutes of a processor for some
//! megabytes that were sent, so the ratio is watched while the text is unpacked.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::bufread::MultiGzDecoder;

/// The length up to which a text may be any number of times as long as its file, in bytes. It takes half a second.
const SHORT: u64 = 256 << 20;
/// How many times as long as its file a longer text may be. Traces of profilers are 8 to 30 times as long as theirs, and gzip
/// reaches 1,032 times.
const MOST_TIMES: u64 = 200;

/// Whether a text was found to be far longer than its file.
#[derive(Clone, Debug, Default)]
pub struct Swollen(Arc<AtomicBool>);

impl Swollen {
    /// Returns true if reading ended because of it.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The error of a text that is far longer than its file.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the text is more than {MOST_TIMES} times as long as the compressed file, which no trace is: reading ended after {} MiB \
     of it",
    SHORT >> 20
)]
pub struct FarLonger;

/// A reader that counts what it has read.
struct Counted<R> {
    file: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// The text of a compressed file.
pub(crate) struct Unpacked<R> {
    text: MultiGzDecoder<BufReader<Counted<R>>>,
    bytes: u64,
    swollen: Swollen,
}

impl<R: BufRead> Unpacked<R> {
    /// Unpacks `file`, which is read `block` bytes at a time.
    pub(crate) fn new(file: R, block: usize, swollen: Swollen) -> Self {
        let file = BufReader::with_capacity(block, Counted { file, bytes: 0 });
        Self { text: MultiGzDecoder::new(file), bytes: 0, swollen }
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        self.bytes += read as u64;
        let file_bytes = self.text.get_ref().get_ref().bytes;
        if self.bytes > SHORT && self.bytes / MOST_TIMES > file_bytes {
            self.swollen.0.store(true, Ordering::Relaxed);
            return Err(io::Error::other(FarLonger));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use crate::Unreadable;

    /// Returns a compressed file whose text begins with `head` and continues with this many MiB of spaces.
    fn bomb(head: &[u8], mib: usize) -> Vec<u8> {
        let mut file = GzEncoder::new(Vec::new(), Compression::fast());
        file.write_all(head).unwrap();
        (0..mib).for_each(|_| file.write_all(&[b' '; 1 << 20]).unwrap());
        file.finish().unwrap()
    }

    #[test]
    fn a_text_that_is_far_longer_than_its_file_is_not_read_to_its_end() {
        for head in [&b"{\"traceEvents\": ["[..], b"{\"schemaVersion\": 1,"] {
            let file = bomb(head, 1_024);
            let mut unread = &file[..];
            let error = crate::read("bomb.json.gz", &mut unread).unwrap_err();
            assert!(matches!(error, Unreadable::Swollen(_)), "{error}");
            assert!(error.to_string().contains("more than 200 times as long"), "{error}");
            assert!(unread.len() > file.len() / 2, "{} of {} bytes are left", unread.len(), file.len());
        }
    }

    #[test]
    fn a_short_text_may_be_compressed_however_well() {
        let error = crate::read("empty.json.gz", &bomb(b"{\"traceEvents\": [", 100)[..]).unwrap_err();
        assert!(!matches!(error, Unreadable::Swollen(_)), "{error}");
    }
}
