//! One newtype per identifier: rank, step and bucket are all integers, and only the compiler keeps them apart.

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
    /// A process of a job, 0-based, as torchrun's `RANK`.
    Rank(u32)
}
id! {
    /// An optimizer step of a job, 0-based; every rank counts alike.
    Step(u64)
}
id! {
    /// A gradient bucket, in launch order, 0-based.
    Bucket(u32)
}
id! {
    /// A communicator within a run: 0 is the data-parallel world.
    Comm(u32)
}
id! {
    /// The n-th collective on one communicator. The pair ([`Comm`], [`Seq`]) joins the ranks of one collective.
    Seq(u64)
}
id! {
    /// The n-th batch that one incarnation of an agent sends.
    BatchSeq(u64)
}
id! {
    /// One life of a rank's process; a restarted rank gets a new one, so that its batch numbers start afresh.
    Incarnation(u64)
}

/// The name of a run: unique on a server, safe in a path, a URL and a Prometheus label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct RunId(String);

/// Why a text is not a [`RunId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "run id {text:?}: {reason} (allowed: 1 to 64 of A-Z a-z 0-9 . _ -, not starting with a dot, not ending in .json, not `latest`)"
)]
pub struct RunIdError {
    /// What was given, cut to 80 characters.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl RunId {
    /// The longest run id in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Checks `text` and makes it a run id.
    ///
    /// # Errors
    /// When it is empty, longer than [`Self::MAX_BYTES`], starts with a dot, or holds another character
    /// than letters, digits, `.`, `_` and `-`; and when the command line reads it as something else: `latest`, and what
    /// ends in `.json`.
    pub fn new(text: impl Into<String>) -> Result<Self, RunIdError> {
        let text = text.into();
        let reason = if text.is_empty() {
            "is empty"
        } else if text.len() > Self::MAX_BYTES {
            "is too long"
        } else if text.starts_with('.') {
            "starts with a dot"
        } else if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
            "holds a character that is not allowed"
        } else if text == "latest" {
            "is the word for the newest run"
        } else if text.ends_with(".json") {
            "ends as the name of a report's file does"
        } else {
            return Ok(Self(text));
        };
        Err(RunIdError { text: text.chars().take(80).collect(), reason })
    }

    /// The id as text.
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
        for bad in ["", ".", "..", "a/b", "a b", "ä", "\0", "latest", "x.json", &"x".repeat(65)] {
            assert!(RunId::new(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
