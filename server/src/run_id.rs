//! Ids of new runs.

use wire::ids::{RunId, RunIdError};

/// Returns a new run id, `name-YYYYMMDD-HHMMSS-xxxx`. Ids of one name sort by time, and ids of the same second differ.
///
/// # Errors
/// Returns an error if the id is not valid, which no name causes.
pub fn new_run_id(name: &str) -> Result<RunId, RunIdError> {
    let safe: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' })
        .collect();
    // Run ids are used on command lines, where a leading dash begins an option.
    let safe = safe.trim_start_matches(['.', '-']).chars().take(40).collect::<String>();
    let now = jiff::Timestamp::now();
    let unique = (now.as_nanosecond() as u64 ^ u64::from(std::process::id()).rotate_left(20)) & 0xffff;
    let when = now.strftime("%Y%m%d-%H%M%S");
    RunId::new(format!("{}-{when}-{unique:04x}", if safe.is_empty() { "run" } else { &safe }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_can_be_made_from_any_name() {
        for name in ["char_lm", "my model/v2 (test)", "...", "", &"x".repeat(200), "größe", "--help"] {
            let id = new_run_id(name).unwrap();
            assert!(!id.as_str().starts_with('-'), "the id looks like an option: {id}");
        }
    }
}
