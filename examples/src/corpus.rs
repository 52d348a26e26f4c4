//! The training text, as small numbers. The default is this project's own sources, which are built into the program.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use candle_core::{Device, Result as CandleResult, Tensor};

/// The project's sources at build time (see `build.rs`).
const OWN_SOURCES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/corpus.txt"));
/// The largest number of bytes read from a directory or file. An hour of training does not get through more.
const MAX_BYTES: usize = 64 << 20;

/// A text as tokens. A token is the position of a byte among the distinct bytes of the text.
pub struct Corpus {
    tokens: Vec<u8>,
    vocabulary: usize,
    context: usize,
}

impl Corpus {
    /// Reads a file or all files below a directory; without a path, the project's own sources.
    ///
    /// # Errors
    /// Returns an error if the path cannot be read, or if the text is too short for one sample.
    pub fn open(path: Option<&Path>, context: usize) -> Result<Self> {
        let text = match path {
            Some(path) => read(path).with_context(|| format!("--corpus {}", path.display()))?,
            None => OWN_SOURCES.to_vec(),
        };
        let corpus = Self::new(&text, context);
        if corpus.samples() == 0 {
            bail!(
                "the corpus has {} bytes, too few for one sample of {} characters",
                text.len(),
                context + 1
            );
        }
        Ok(corpus)
    }

    fn new(text: &[u8], context: usize) -> Self {
        let mut number = [None; 256];
        text.iter().for_each(|byte| number[usize::from(*byte)] = Some(0_u8));
        let mut vocabulary = 0_usize;
        for number in number.iter_mut().flatten() {
            *number = vocabulary as u8;
            vocabulary += 1;
        }
        let tokens = text.iter().filter_map(|byte| number[usize::from(*byte)]).collect();
        Self { tokens, vocabulary, context }
    }

    /// Returns the number of distinct characters.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Returns the number of samples. Samples are consecutive stretches of the context's length.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.tokens.len().saturating_sub(1) / self.context
    }

    /// Returns the characters of the samples, and for each character the one that follows it.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    pub fn batch(&self, samples: &[u32]) -> CandleResult<(Tensor, Tensor)> {
        let shape = (samples.len(), self.context);
        let shifted = |shift: usize| {
            let sample =
                |sample: &u32| &self.tokens[*sample as usize * self.context + shift..][..self.context];
            let tokens: Vec<u32> = samples.iter().flat_map(sample).map(|token| u32::from(*token)).collect();
            Tensor::from_vec(tokens, shape, &Device::Cpu)
        };
        Ok((shifted(0)?, shifted(1)?.flatten_all()?))
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        if text.len() >= MAX_BYTES {
            break;
        }
        if path.is_dir() {
            let mut entries = entries(&path)?;
            // Sorts in descending order because the last path is read first. The order is the same on every machine.
            entries.sort_by(|a, b| b.cmp(a));
            waiting.extend(entries);
        } else {
            text.extend(std::fs::read(&path).with_context(|| path.display().to_string())?);
        }
    }
    text.truncate(MAX_BYTES);
    Ok(text)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let visible =
        |path: &PathBuf| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(visible).filter(|path| !path.is_symlink()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_consecutive_stretches() {
        let corpus = Corpus::new(b"abcabcab", 3);
        assert_eq!((corpus.vocabulary(), corpus.samples()), (3, 2));
        let (seen, came) = corpus.batch(&[1, 0]).unwrap();
        assert_eq!(seen.to_vec2::<u32>().unwrap(), [[0, 1, 2], [0, 1, 2]]);
        assert_eq!(came.to_vec1::<u32>().unwrap(), [1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn the_built_in_corpus_is_large_enough() {
        let corpus = Corpus::open(None, 64).unwrap();
        assert!(corpus.samples() > 1_000 && corpus.vocabulary() > 80, "{} samples", corpus.samples());
    }

    #[test]
    fn directories_are_read_in_order_and_errors_name_the_corpus() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("b", "2"), ("a", "1"), (".hidden", "x")] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        assert_eq!(read(directory.path()).unwrap(), b"12");
        let error = Corpus::open(Some(Path::new("/nowhere")), 4).err().unwrap();
        assert!(format!("{error:#}").starts_with("--corpus /nowhere: "), "{error:#}");
        let error = Corpus::open(Some(directory.path()), 4).err().unwrap();
        assert_eq!(error.to_string(), "the corpus has 2 bytes, too few for one sample of 5 characters");
    }
}
