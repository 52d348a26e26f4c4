//! Inputs that are right, or went wrong once.

use std::fs;
use std::path::Path;

/// Entries by name, and words that mean something to who reads them.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    entries: Vec<(String, Vec<u8>)>,
    words: Vec<Vec<u8>>,
}

impl Corpus {
    /// The files in `folder`, and in folders in it. Those whose name ends in `.hex` hold the bytes in hexadecimal.
    ///
    /// # Panics
    /// When the folder cannot be read or is empty: a target without a corpus tests nothing.
    #[must_use]
    pub fn folder(folder: impl AsRef<Path>) -> Self {
        let mut corpus = Self::default();
        corpus.add_folder(folder.as_ref(), |_| true);
        corpus.found(folder.as_ref())
    }

    /// As [`Self::folder`], but only files whose name ends so.
    ///
    /// # Panics
    /// As [`Self::folder`].
    #[must_use]
    pub fn files(folder: impl AsRef<Path>, ending: &str) -> Self {
        let mut corpus = Self::default();
        corpus.add_folder(folder.as_ref(), |name| name.ends_with(ending));
        corpus.found(folder.as_ref())
    }

    /// The lines of a text, each an entry by itself.
    ///
    /// # Panics
    /// When the file cannot be read or is empty.
    #[must_use]
    pub fn lines(file: impl AsRef<Path>) -> Self {
        let file = file.as_ref();
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let lines = text.lines().filter(|line| !line.is_empty());
        let entries = lines.map(|line| (line.to_owned(), line.as_bytes().to_vec())).collect();
        Self { entries, words: Vec::new() }.found(file)
    }

    /// With these entries too.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.words.extend(other.words);
        self
    }

    /// With one entry more.
    #[must_use]
    pub fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.entries.push((name.to_owned(), bytes.into()));
        self
    }

    /// The inputs are text: words of it are exchanged as a whole, for words of other entries and for these.
    #[must_use]
    pub fn words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| word.as_bytes().to_vec()));
        self
    }

    /// Without entries that are wrong as they are, where those would only be refused again.
    #[must_use]
    pub fn only(mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Self {
        self.entries.retain(|(_, bytes)| is_wanted(bytes));
        self
    }

    /// Every entry turned into something else, as into the frame around it.
    #[must_use]
    pub fn map(mut self, change: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        self.entries.iter_mut().for_each(|(_, bytes)| *bytes = change(bytes));
        self
    }

    /// Names and bytes.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// The bytes of all entries.
    pub(crate) fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|(_, bytes)| bytes.as_slice())
    }

    /// Words of the format; none where it is not text.
    pub(crate) fn all_words(&self) -> &[Vec<u8>] {
        &self.words
    }

    fn found(self, folder: &Path) -> Self {
        assert!(!self.entries.is_empty(), "there is no corpus in {}", folder.display());
        self
    }

    fn add_folder(&mut self, folder: &Path, is_wanted: impl Fn(&str) -> bool + Copy) {
        let listed = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = listed.map(|entry| entry.expect("a folder can be listed").path()).collect();
        // In one order everywhere, or a seed would mean something else on another machine.
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

/// Bytes that are written in hexadecimal, with white space anywhere between them and comments behind `#`.
fn from_hex(name: &str, text: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(text).unwrap_or_else(|_| panic!("{name} is not text"));
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: Vec<u32> = code
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap_or_else(|| panic!("{name}: {c:?} is no hexadecimal digit")))
        .collect();
    assert!(digits.len().is_multiple_of(2), "{name} has half a byte");
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
