//! Corpora of inputs: valid ones, and those that once caused a failure.

use std::fs;
use std::path::Path;

/// Named inputs, and words that are meaningful in their format.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    entries: Vec<(String, Vec<u8>)>,
    words: Vec<Vec<u8>>,
}

impl Corpus {
    /// Reads the files in `folder` and its subfolders. Files whose name ends in `.hex` contain the bytes in
    /// hexadecimal.
    ///
    /// # Panics
    /// Panics if the folder cannot be read or is empty, because a target without a corpus tests nothing.
    #[must_use]
    pub fn folder(folder: impl AsRef<Path>) -> Self {
        let mut corpus = Self::default();
        corpus.add_folder(folder.as_ref(), |_| true);
        corpus.found(folder.as_ref())
    }

    /// Reads only files whose name ends in `ending`, otherwise like [`Self::folder`].
    ///
    /// # Panics
    /// Panics under the same conditions as [`Self::folder`].
    #[must_use]
    pub fn files(folder: impl AsRef<Path>, ending: &str) -> Self {
        let mut corpus = Self::default();
        corpus.add_folder(folder.as_ref(), |name| name.ends_with(ending));
        corpus.found(folder.as_ref())
    }

    /// Reads a text. Each line is an entry.
    ///
    /// # Panics
    /// Panics if the file cannot be read or is empty.
    #[must_use]
    pub fn lines(file: impl AsRef<Path>) -> Self {
        let file = file.as_ref();
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let lines = text.lines().filter(|line| !line.is_empty());
        let entries = lines.map(|line| (line.to_owned(), line.as_bytes().to_vec())).collect();
        Self { entries, words: Vec::new() }.found(file)
    }

    /// Adds the entries and words of another corpus.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.words.extend(other.words);
        self
    }

    /// Adds an entry.
    #[must_use]
    pub fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.entries.push((name.to_owned(), bytes.into()));
        self
    }

    /// Declares the inputs to be text and adds words. Mutations replace whole words by words of other entries or by
    /// these words.
    #[must_use]
    pub fn words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| word.as_bytes().to_vec()));
        self
    }

    /// Removes entries that are not wanted, for example invalid ones that would only be rejected again.
    #[must_use]
    pub fn only(mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Self {
        self.entries.retain(|(_, bytes)| is_wanted(bytes));
        self
    }

    /// Replaces every entry by the result of `change`, for example to frame it.
    #[must_use]
    pub fn map(mut self, change: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        self.entries.iter_mut().for_each(|(_, bytes)| *bytes = change(bytes));
        self
    }

    /// Returns the names and bytes of all entries.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// Returns the bytes of all entries.
    pub(crate) fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|(_, bytes)| bytes.as_slice())
    }

    /// Returns the words of the format. There are none if the format is not text.
    pub(crate) fn all_words(&self) -> &[Vec<u8>] {
        &self.words
    }

    fn found(self, folder: &Path) -> Self {
        assert!(!self.entries.is_empty(), "there is no corpus in {}", folder.display());
        self
    }

    fn add_folder(&mut self, folder: &Path, is_wanted: impl Fn(&str) -> bool + Copy) {
        let listed = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = listed.map(|entry| entry.expect("the folder can be listed").path()).collect();
        // The order must be the same everywhere, so that a seed has the same meaning on every machine.
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                self.add_folder(&path, is_wanted);
            } else if is_wanted(&name) {
                let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let bytes = if name.ends_with(".hex") { from_hex(&name, &bytes) } else { bytes };
                self.entries.push((name, bytes));
            }
        }
    }
}

/// Parses hexadecimal bytes, with white space anywhere and comments after `#`.
fn from_hex(name: &str, text: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(text).unwrap_or_else(|_| panic!("{name} is not text"));
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: Vec<u32> = code
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap_or_else(|| panic!("{name}: {c:?} is not a hexadecimal digit")))
        .collect();
    assert!(digits.len().is_multiple_of(2), "{name} has an odd number of digits");
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
