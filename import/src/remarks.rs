//! What a reader of a file has to say about it, by reason, with how often each applies.

use std::collections::BTreeMap;

/// Remarks by text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks(BTreeMap<String, u64>);

impl Remarks {
    /// Adds a remark.
    pub fn add(&mut self, text: impl Into<String>) {
        *self.0.entry(text.into()).or_default() += 1;
    }

    /// Adds all of `other`.
    pub(crate) fn append(&mut self, other: Self) {
        for (text, times) in other.0 {
            *self.0.entry(text).or_default() += times;
        }
    }

    /// Returns the remarks, with how often each was made.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(text, &times)| (text.as_str(), times))
    }

    /// Returns the remarks as sentences.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let sentence = |(text, times): (&str, u64)| {
            if times == 1 { text.to_owned() } else { format!("{text} ({times} times)") }
        };
        self.iter().map(sentence).collect()
    }
}
