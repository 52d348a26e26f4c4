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

/// The name of a run. It is unique on a server, and safe in a path, a URL and a Prometheus label. Not every id that can be
/// read may be given to a new run ([`Self::may_be_new`]).
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
    /// something else: `latest`, and names that end in `.json`.
    pub fn new(text: impl Into<String>) -> Result<Self, RunIdError> {
        let text = text.into();
        let reason = if text.is_empty() {
            "is empty"
        } else if text.len() > Self::MAX_BYTES {
            "is too long"
        } else if text.starts_with('.') {
            "starts with a dot"
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

    /// Creates the id of a new run from `text`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::new`], and an error if no new run may have the id ([`Self::may_be_new`]).
    pub fn for_new_run(text: impl Into<String>) -> Result<Self, RunIdError> {
        let id = Self::new(text)?;
        if id.may_be_new() {
            return Ok(id);
        }
        Err(RunIdError { text: id.0, reason: "starts with a dash, which commands read as an option" })
    }

    /// Returns false for an id that no new run may have: commands read one that begins with a dash as an option. Runs that
    /// were stored under such an id are still read; on the command line, `--` goes before them.
    #[must_use]
    pub fn may_be_new(&self) -> bool {
        !self.0.starts_with('-')
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
        for good in ["a", "char_lm-20261120-083000-7f3a", "A.b"] {
            assert_eq!(RunId::new(good).unwrap().as_str(), good);
        }
        assert_eq!(RunId::for_new_run("a-b").unwrap().as_str(), "a-b");
        let error = RunId::for_new_run("-rf").unwrap_err().to_string();
        assert!(error.starts_with("run id \"-rf\": starts with a dash"), "{error}");
        assert_eq!(RunId::new("-rf").unwrap().as_str(), "-rf", "a run that is stored stays readable");
        for bad in ["", ".", "..", "a/b", "a b", "ä", "\0", "latest", "x.json", &"x".repeat(65)] {
            assert!(RunId::new(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
