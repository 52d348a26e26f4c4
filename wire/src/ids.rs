//! Identifiers. Rank, step and bucket are all integers, and a type for each keeps them from being confused.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// The index of a process in a job, from 0, as in torchrun's `RANK`.
    Rank(u32)
}
id! {
    /// The index of an optimizer step of a job, from 0. All ranks count alike.
    Step(u64)
}
id! {
    /// The index of a gradient bucket, in launch order, from 0.
    Bucket(u32)
}
id! {
    /// A communicator of a run. 0 is the data-parallel world.
    Comm(u32)
}
id! {
    /// The sequence number of a collective on its communicator. The pair ([`Comm`], [`Seq`]) identifies one collective
    /// on all ranks.
    Seq(u64)
}
id! {
    /// The sequence number of a batch in its incarnation.
    BatchSeq(u64)
}
id! {
    /// The incarnation of a rank: one process. A restarted rank has a new incarnation, whose batch numbers start at 0
    /// again.
    Incarnation(u64)
}

/// The name of a run. It is unique on a server, and safe in a path, a URL and a Prometheus label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct RunId(String);

/// The reason why a text is not a [`RunId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "run id {text:?}: {reason} (allowed: 1 to 64 of A-Z a-z 0-9 . _ -, not starting with a dot or a dash, not ending in .json, not `latest`)"
)]
pub struct RunIdError {
    /// The text, cut to 80 characters.
    pub text: String,
    /// The rule that the text breaks.
    pub reason: &'static str,
}

impl RunId {
    /// The longest run id in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Creates a run id from `text`.
    ///
    /// # Errors
    /// Returns an error if `text` is empty, is longer than [`Self::MAX_BYTES`], starts with a dot, or has a character
    /// other than letters, digits, `.`, `_` and `-`. Also returns an error for texts that the command line reads as
    /// something else: `latest`, and names that start with a dash or end in `.json`.
    pub fn new(text: impl Into<String>) -> Result<Self, RunIdError> {
        let text = text.into();
        let reason = if text.is_empty() {
            "is empty"
        } else if text.len() > Self::MAX_BYTES {
            "is too long"
        } else if text.starts_with('.') {
            "starts with a dot"
        } else if text.starts_with('-') {
            "starts with a dash, which commands read as an option"
        } else if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
            "has a character that is not allowed"
        } else if text == "latest" {
            "means the newest run"
        } else if text.ends_with(".json") {
            "ends like the file name of a report"
        } else {
            return Ok(Self(text));
        };
        Err(RunIdError { text: text.chars().take(80).collect(), reason })
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for RunId {
    type Err = RunIdError;
    fn from_str(text: &str) -> Result<Self, RunIdError> {
        Self::new(text)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_safe_in_a_path() {
        for good in ["a", "char_lm-20261120-083000-7f3a", "A.b", "a-b"] {
            assert_eq!(RunId::new(good).unwrap().as_str(), good);
        }
        let error = RunId::new("-rf").unwrap_err().to_string();
        assert!(error.starts_with("run id \"-rf\": starts with a dash"), "{error}");
        for bad in ["", ".", "..", "a/b", "a b", "ä", "\0", "latest", "x.json", &"x".repeat(65)] {
            assert!(RunId::new(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
