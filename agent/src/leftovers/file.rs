//! A file of leftovers: a line that names the format, a line with the server's address, and the encoded batches. Before each batch are its
//! length and the CRC-32 of the length and the batch, in four bytes each, least significant byte first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufWriter, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use wire::batch::MAX_WIRE_BYTES;

/// The first line of a file.
const FORMAT: &str = "paceline-spool 1";
/// The longest line, in bytes.
const MAX_LINE_BYTES: u64 = 4 << 10;
/// The bytes before each batch.
pub(super) const HEAD_BYTES: usize = 8;

/// Writes a file that only its user can read. What has its name before is replaced.
pub(super) fn write<'a>(path: &Path, server: &str, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    let _none_there = fs::remove_file(path);
    let mut out = BufWriter::new(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?);
    writeln!(out, "{FORMAT}\n{server}")?;
    for frame in frames {
        let length = (frame.len() as u32).to_le_bytes();
        out.write_all(&length)?;
        out.write_all(&checksum(length, frame).to_le_bytes())?;
        out.write_all(frame)?;
    }
    out.into_inner()?;
    Ok(())
}

/// Opens a file of leftovers for reading; an error for a link, and for anything but a file. A pipe would block.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}

/// Reads the first two lines, and returns the address of the server; `None` if it is a file of something else.
pub(super) fn server_of(reader: &mut impl BufRead) -> Option<String> {
    let mut line = || {
        let mut line = String::new();
        reader.by_ref().take(MAX_LINE_BYTES).read_line(&mut line).ok()?;
        line.strip_suffix('\n').map(str::to_owned)
    };
    (line()? == FORMAT).then(line)?
}

/// What follows in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Frame(Vec<u8>),
    End,
    /// From here on nothing can be read: the file was cut, or changed.
    Damage,
}

/// Reads one batch.
pub(super) fn next(reader: &mut impl BufRead) -> Next {
    if reader.fill_buf().is_ok_and(<[u8]>::is_empty) {
        return Next::End;
    }
    frame(reader).map_or(Next::Damage, Next::Frame)
}

fn frame(reader: &mut impl Read) -> Option<Vec<u8>> {
    let (mut length, mut sum) = ([0; 4], [0; 4]);
    reader.read_exact(&mut length).ok()?;
    reader.read_exact(&mut sum).ok()?;
    let bytes = usize::try_from(u32::from_le_bytes(length)).ok().filter(|bytes| *bytes <= MAX_WIRE_BYTES)?;
    let mut frame = vec![0; bytes];
    reader.read_exact(&mut frame).ok()?;
    (checksum(length, &frame) == u32::from_le_bytes(sum)).then_some(frame)
}

fn checksum(length: [u8; 4], frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(frame);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn read(bytes: &[u8]) -> (Option<String>, Vec<Next>) {
        let mut reader = BufReader::new(bytes);
        let server = server_of(&mut reader);
        let mut all = Vec::new();
        loop {
            all.push(next(&mut reader));
            if !matches!(all.last(), Some(Next::Frame(_))) {
                return (server, all);
            }
        }
    }

    #[test]
    fn batches_are_read_back_up_to_the_first_damage() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("r.spool");
        let frames: [&[u8]; 3] = [b"one", b"", b"three"];
        fs::write(&path, b"what was there before").unwrap();
        write(&path, "http://h:1", frames.into_iter()).unwrap();
        let whole = fs::read(&path).unwrap();
        let (server, all) = read(&whole);
        assert_eq!(server.as_deref(), Some("http://h:1"));
        let frame = |frame: &[u8]| Next::Frame(frame.to_vec());
        assert_eq!(all, [frame(b"one"), frame(b""), frame(b"three"), Next::End]);

        let head = whole.len() - 3 * HEAD_BYTES - 8;
        for damaged in head..whole.len() {
            let mut flipped = whole.clone();
            flipped[damaged] ^= 0x10;
            assert_eq!(read(&flipped).1.last(), Some(&Next::Damage), "the byte at {damaged}");
            let is_between = [head, head + HEAD_BYTES + 3, head + 2 * HEAD_BYTES + 3].contains(&damaged);
            let last = if is_between { Next::End } else { Next::Damage };
            assert_eq!(read(&whole[..damaged]).1.last(), Some(&last), "cut at {damaged}");
        }
    }
}
