//! JSON files whose last field, `crc32`, is a checksum of all bytes before it.

use serde::Serialize;

/// What stands before the checksum.
const KEY: &str = ",\n  \"crc32\": \"";

/// `value`, which must be written as an object that is not empty, with its checksum.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn sign(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(value)?;
    let body = text.strip_suffix('}').unwrap_or(&text).trim_end();
    Ok(with_checksum(body).into_bytes())
}

/// The JSON without its checksum. `None` where that does not match, or is not there.
#[must_use]
pub fn verified(text: &str) -> Option<String> {
    let (body, _) = text.rsplit_once(KEY)?;
    (with_checksum(body) == text).then(|| format!("{body}\n}}"))
}

fn with_checksum(body: &str) -> String {
    format!("{body}{KEY}{:08x}\"\n}}\n", crc32fast::hash(body.as_bytes()))
}
