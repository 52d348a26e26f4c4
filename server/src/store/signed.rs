//! JSON files whose last field, `crc32`, is a checksum of all bytes before it.

use serde::{Deserialize, Serialize};

/// The text before the checksum.
const KEY: &str = ",\n  \"crc32\": \"";

/// Serializes `value` with its checksum. It must serialize to a non-empty object.
///
/// # Errors
/// Returns an error if `value` cannot be serialized.
pub fn sign(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(value)?;
    let body = text.strip_suffix('}').unwrap_or(&text).trim_end();
    Ok(with_checksum(body).into_bytes())
}

/// Returns the JSON without its checksum, or `None` if the checksum is missing or does not match.
#[must_use]
pub fn verified(text: &str) -> Option<String> {
    let (body, _) = text.rsplit_once(KEY)?;
    (with_checksum(body) == text).then(|| format!("{body}\n}}"))
}

/// Checks the version of a format in JSON, before the rest is read.
///
/// # Errors
/// Returns an error if it is another one than `known`.
pub fn known(json: &[u8], known: u32) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    match serde_json::from_slice(json) {
        Ok(Versioned { version }) if version == known => Ok(()),
        Ok(Versioned { version }) => Err(format!(
            "it is of version {version}, and this program reads version {known}: use the release that wrote it"
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn with_checksum(body: &str) -> String {
    format!("{body}{KEY}{:08x}\"\n}}\n", crc32fast::hash(body.as_bytes()))
}
