//! Layouts: which parameters lie in which bucket.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};

use crate::ids::{Bucket, Comm};

/// The largest number of parameters in a layout.
pub const MAX_PARAMETERS: usize = 65_536;
/// The longest name of a parameter, in bytes. Longer names are cut.
pub const MAX_NAME_BYTES: usize = 256;
/// The largest number of modules of a rank whose layouts are kept.
pub const MAX_MODULES: u32 = 64;
/// The largest number of layouts of a module that are kept.
pub const MAX_HISTORY: usize = 64;
/// The most memory that a layout may take, in bytes. A batch has room for the layouts of several modules.
pub const MAX_LAYOUT_BYTES: usize = 1 << 20;

/// One layout of parameters in buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Layout {
    /// The communicator that reduces the buckets. 0 in unmodified jobs, where the sizes of the buckets tell it.
    pub comm: Comm,
    /// The generation of the layout: 0 at the start, 1 after the rebuild.
    pub generation: u32,
    /// The buckets in launch order. Ranks other than 0 send the digest alone.
    pub buckets: Vec<LayoutBucket>,
    /// The number of the module in its process, in the order in which the job made them.
    pub module: u32,
    /// The name of the module's class; empty if it is unknown.
    pub class: String,
    /// The first step with this layout, counted by optimizer updates; null if the job does not report its updates.
    pub since: Option<u64>,
    /// The parameters that got no gradient in the newest backward pass that was looked at, in ascending order. They are
    /// counted through all buckets. Null if no pass was looked at.
    pub unused: Option<Vec<u32>>,
    /// [`Layout::digest_of_buckets`]. Hooks leave it to [`Layout::bounded`].
    #[serde(default)]
    pub digest: u64,
}

/// One bucket of a [`Layout`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LayoutBucket {
    /// The index of the bucket.
    pub bucket: Bucket,
    /// The size of the bucket, in bytes.
    pub bytes: u64,
    /// The names of the bucket's parameters, in the order in which they lie in the bucket.
    pub parameters: Vec<String>,
    /// The number of elements of each parameter; empty if they are unknown.
    pub elements: Vec<u64>,
    /// The type of the elements, such as `float32`; empty if it is unknown.
    pub dtype: String,
}

impl LayoutBucket {
    /// Returns the number of elements of all parameters; `None` if they are unknown.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        let known = !self.elements.is_empty();
        known.then(|| self.elements.iter().fold(0, |sum: u64, &elements| sum.saturating_add(elements)))
    }
}

impl Layout {
    /// Returns the number of parameters.
    #[must_use]
    pub fn count(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.parameters.len()).sum()
    }

    /// Returns the names of the parameters without a gradient ([`Self::unused`]).
    pub fn unused_names(&self) -> impl Iterator<Item = &str> {
        let names: Vec<&str> =
            self.buckets.iter().flat_map(|bucket| &bucket.parameters).map(String::as_str).collect();
        let unused = self.unused.iter().flatten();
        unused.filter_map(move |&at| names.get(at as usize).copied())
    }

    /// Returns how much memory the lists and texts take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let bytes = |bucket: &LayoutBucket| {
            let names: usize = bucket.parameters.iter().map(|name| size_of::<String>() + name.len()).sum();
            size_of::<LayoutBucket>() + names + size_of_val(bucket.elements.as_slice()) + bucket.dtype.len()
        };
        let unused = self.unused.as_ref().map_or(0, |unused| size_of_val(unused.as_slice()));
        self.buckets.iter().map(bytes).sum::<usize>() + self.class.len() + unused
    }

    /// Returns a number that differs between layouts with different buckets: FNV-1a over the sizes, types, names and
    /// elements. It is never 0.
    #[must_use]
    pub fn digest_of_buckets(&self) -> u64 {
        let mut digest = FnvHasher::default();
        for bucket in &self.buckets {
            add(&mut digest, bucket.bytes);
            add_text(&mut digest, &bucket.dtype);
            add(&mut digest, bucket.parameters.len() as u64);
            bucket.parameters.iter().for_each(|name| add_text(&mut digest, name));
            bucket.elements.iter().for_each(|&elements| add(&mut digest, elements));
        }
        digest.finish().max(1)
    }

    /// Prepares the layout for sending: names are cut, and the digest is set. Returns `None` if it has too many parameters
    /// or takes too much memory.
    #[must_use]
    pub fn bounded(mut self) -> Option<Self> {
        for name in self.buckets.iter_mut().flat_map(|bucket| &mut bucket.parameters) {
            name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
        }
        self.class.truncate(self.class.floor_char_boundary(MAX_NAME_BYTES));
        self.digest = self.digest_of_buckets();
        let fits = self.count() <= MAX_PARAMETERS && self.bytes() <= MAX_LAYOUT_BYTES;
        (fits && self.module < MAX_MODULES).then_some(self)
    }

    /// Returns the layout without its buckets. The digest stays.
    #[must_use]
    pub fn digest_alone(self) -> Self {
        Self { buckets: Vec::new(), unused: None, ..self }
    }
}

/// Adds a number to a digest, alike on all machines.
fn add(digest: &mut FnvHasher, number: u64) {
    digest.write(&number.to_le_bytes());
}

/// Adds a text and its length to a digest, so that two texts differ from their concatenation.
fn add_text(digest: &mut FnvHasher, text: &str) {
    add(digest, text.len() as u64);
    digest.write(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(names: &[&str]) -> Layout {
        let bucket = LayoutBucket {
            bytes: 40,
            parameters: names.iter().map(|&name| name.to_owned()).collect(),
            elements: vec![5; names.len()],
            dtype: "float32".into(),
            ..LayoutBucket::default()
        };
        Layout { buckets: vec![bucket], ..Layout::default() }
    }

    #[test]
    fn the_digest_depends_on_the_buckets_alone() {
        let first = layout(&["a", "b"]);
        let later = Layout { since: Some(7), unused: Some(vec![1]), generation: 1, ..first.clone() };
        assert_eq!(first.digest_of_buckets(), later.digest_of_buckets());
        for other in [layout(&["b", "a"]), layout(&["ab", ""]), layout(&["a"]), Layout::default()] {
            assert_ne!(first.digest_of_buckets(), other.digest_of_buckets(), "{other:?}");
        }
        let sent = first.clone().bounded().unwrap();
        assert_eq!(sent.clone().digest_alone().digest, sent.digest);
        assert_eq!(later.unused_names().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn long_names_are_cut_and_a_layout_that_is_too_large_is_not_sent() {
        let long = "\u{fc}".repeat(200);
        let cut = layout(&[&long]).bounded().unwrap();
        assert_eq!(cut.buckets[0].parameters[0], "\u{fc}".repeat(128));
        assert_eq!(layout(&vec!["a"; MAX_PARAMETERS + 1]).bounded(), None);
        assert_eq!(layout(&vec![&*long; 5_000]).bounded(), None);
    }
}
