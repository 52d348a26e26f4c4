//! Files of formats that are read as a whole.

use std::io::Read;

use crate::format::Format;
use crate::unreadable::Unreadable;

/// The largest file of such a format, in bytes.
const MAX_BYTES: u64 = 128 << 20;

/// Reads the plain bytes of a file.
///
/// # Errors
/// Returns an error if the file cannot be read or is too large.
pub(crate) fn read(plain: impl Read, format: Format) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    plain.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Unreadable::TooLarge { format, most: format!("{} MiB", MAX_BYTES >> 20) });
    }
    Ok(bytes)
}
