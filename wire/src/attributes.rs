//! Attributes of a rank: the labels that its user gave it, and the versions of the software that it runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The largest number of labels of a rank, and of its software components.
pub const MAX_ATTRIBUTES: usize = 64;
/// The longest name of a label or a component, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// The longest value of a label and the longest version, in bytes.
pub const MAX_VALUE_BYTES: usize = 256;
/// The key of the label by which a job states its accuracy: a number, such as 0.973.
pub const ACCURACY: &str = "accuracy";
/// The software component that says whether a hypervisor runs the rank's host.
pub const HYPERVISOR: &str = "hypervisor";
/// The value of [`HYPERVISOR`] on a host whose processors are its own.
pub const NO_HYPERVISOR: &str = "none";

/// The attributes of a rank. A rank sends them at its start, and those that it learns later once more. A later value
/// replaces an earlier one of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The user's labels by name: `team` is `nlp`.
    pub labels: BTreeMap<String, String>,
    /// The version of each software component by name: `nccl` is `2.28.9`.
    pub software: BTreeMap<String, String>,
}

impl Attributes {
    /// Returns the size of all names and values in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let all = self.labels.iter().chain(&self.software);
        all.map(|(name, value)| 2 * size_of::<String>() + name.len() + value.len()).sum()
    }

    /// Adds the attributes in `later`. Names beyond [`MAX_ATTRIBUTES`] are dropped.
    pub fn extend(&mut self, later: Self) {
        extend(&mut self.labels, later.labels);
        extend(&mut self.software, later.software);
    }
}

fn extend(all: &mut BTreeMap<String, String>, later: BTreeMap<String, String>) {
    for (name, value) in later {
        if all.len() < MAX_ATTRIBUTES || all.contains_key(&name) {
            all.insert(name, value);
        }
    }
}

/// The reason why a text is not a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// There is no `=`.
    #[error("{label:?} is not a label: write KEY=VALUE, such as team=nlp")]
    NoValue {
        /// The text.
        label: String,
    },
    /// The key is empty, too long, or has characters that keys must not have.
    #[error(
        "the key of {label:?} must have 1 to {MAX_NAME_BYTES} characters: ASCII letters, digits, and any of _ . - /"
    )]
    Key {
        /// The text.
        label: String,
    },
    /// The value is too long, or has characters that values must not have.
    #[error(
        "the value of {label:?} must have at most {MAX_VALUE_BYTES} bytes, without commas and control characters"
    )]
    Value {
        /// The text.
        label: String,
    },
    /// There are too many labels.
    #[error("there are {found} labels, and a rank can have {MAX_ATTRIBUTES}")]
    TooMany {
        /// The number of labels.
        found: usize,
    },
}

/// Parses one label, `KEY=VALUE`.
///
/// # Errors
/// Returns an error if the text is not a label.
pub fn parse_label(text: &str) -> Result<(String, String), LabelError> {
    let (key, value) = text.split_once('=').ok_or_else(|| LabelError::NoValue { label: text.to_owned() })?;
    label(key, value)
}

/// Returns the label with this key and this value, without white space around either.
///
/// # Errors
/// Returns an error if the key or the value has a wrong length or characters that it must not have.
pub fn label(key: &str, value: &str) -> Result<(String, String), LabelError> {
    let label = || format!("{key}={value}");
    let (key, value) = (key.trim(), value.trim());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    if !(1..=MAX_NAME_BYTES).contains(&key.len()) || !key.chars().all(is_plain) {
        return Err(LabelError::Key { label: label() });
    }
    if value.len() > MAX_VALUE_BYTES || value.chars().any(|c| c == ',' || c.is_control()) {
        return Err(LabelError::Value { label: label() });
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses labels separated by commas: `team=nlp,image=v7`. Empty parts are ignored. The last of several values of one
/// key counts.
///
/// # Errors
/// Returns an error if a part is not a label, or if there are too many.
pub fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, LabelError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let labels = parts.map(parse_label).collect::<Result<BTreeMap<_, _>, _>>()?;
    if labels.len() > MAX_ATTRIBUTES {
        return Err(LabelError::TooMany { found: labels.len() });
    }
    Ok(labels)
}

/// Formats labels as [`parse_labels`] reads them.
#[must_use]
pub fn write_labels(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_separated_by_commas_and_the_last_value_counts() {
        let labels = parse_labels(" team=nlp, image=registry/x:7=b ,,team=vision,note=").unwrap();
        assert_eq!(write_labels(&labels), "image=registry/x:7=b,note=,team=vision");
        assert_eq!(parse_labels(&write_labels(&labels)), Ok(labels));
        assert_eq!(parse_labels(""), Ok(BTreeMap::new()));
    }

    #[test]
    fn a_text_that_is_no_label_is_quoted_in_the_error() {
        let error = |text: &str| parse_labels(text).unwrap_err().to_string();
        assert!(error("a=1,team").starts_with("\"team\" is not a label: write KEY=VALUE"));
        assert!(error("=1").starts_with("the key of \"=1\" must"));
        assert!(error("my team=nlp").starts_with("the key of \"my team=nlp\""));
        assert!(error(&format!("{}=1", "k".repeat(65))).contains("1 to 64 characters"));
        assert!(error("a=\u{7}").starts_with("the value of \"a=\\u{7}\""));
        let many: Vec<String> = (0..65).map(|number| format!("k{number}=")).collect();
        assert_eq!(error(&many.join(",")), "there are 65 labels, and a rank can have 64");
    }

    #[test]
    fn a_key_and_a_value_are_checked_as_in_a_text() {
        assert_eq!(label(" accuracy", "0.5 "), parse_label("accuracy=0.5"));
        assert_eq!(label("a=b", "1"), Err(LabelError::Key { label: "a=b=1".into() }));
        assert_eq!(label("a", "1,2"), Err(LabelError::Value { label: "a=1,2".into() }));
    }

    #[test]
    fn a_later_value_replaces_an_earlier_one_and_the_number_of_names_is_limited() {
        let named = |name: &str, value: &str| Attributes {
            software: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..Attributes::default()
        };
        let mut all = named("nccl", "1");
        all.extend(named("nccl", "2"));
        assert_eq!(all, named("nccl", "2"));
        (0..100).for_each(|number| all.extend(named(&number.to_string(), "")));
        assert_eq!(all.software.len(), MAX_ATTRIBUTES);
        all.extend(named("nccl", "3"));
        assert_eq!(all.software["nccl"], "3");
    }
}
