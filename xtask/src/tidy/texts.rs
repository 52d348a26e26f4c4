//! Rules for texts: cited files and headings exist, and retired words are not used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;

use crate::system::root;

/// Words that docs/glossary.md replaces, or that make a sentence hard to read.
const RETIRED: [&str; 8] =
    ["manieth", "manyth", "nobody", "anew", "told of", "tells of", "METRICS.md", "seat"];

/// Parts of words in British spelling, and their American spelling, which this repository uses.
const BRITISH: [(&str, &str); 14] = [
    ("analyse", "analyze"),
    ("analysing", "analyzing"),
    ("behaviour", "behavior"),
    ("cancelled", "canceled"),
    ("centre", "center"),
    ("colour", "color"),
    ("judgement", "judgment"),
    ("labelled", "labeled"),
    ("modelled", "modeled"),
    ("neighbour", "neighbor"),
    ("optimis", "optimiz"),
    ("summaris", "summariz"),
    ("synchronis", "synchroniz"),
    ("travelled", "traveled"),
];

/// What git writes around two versions of a text that it cannot merge.
const MERGE_MARKS: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];

/// Extensions of the files that the rules apply to.
const TEXTS: [&str; 8] = ["rs", "md", "toml", "py", "sh", "yml", "css", "html"];

/// Returns the places that cite a missing file or heading, or use a retired word.
pub(super) fn check(files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let documents = Documents::read(files)?;
    let mut broken = Vec::new();
    for path in files.iter().filter(|path| is_text(path)) {
        let text = fs::read_to_string(root().join(path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        for (index, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), index + 1);
            let wrong = documents.wrong_citations(path, line).into_iter();
            broken.extend(wrong.map(|citation| format!("{place}: cites {citation}, which does not exist")));
            if MERGE_MARKS.iter().any(|mark| line.starts_with(mark)) {
                broken.push(format!("{place}: two versions of the text wait to be merged"));
            }
            broken.extend(retired(line).map(|word| format!("{place}: uses the retired word {word:?}")));
            broken
                .extend(british(line).map(|(word, own)| format!("{place}: write {own:?} and not {word:?}")));
        }
    }
    Ok(broken)
}

fn is_text(path: &Path) -> bool {
    let is_own = path.ends_with("xtask/src/tidy/texts.rs");
    !is_own && path.extension().is_some_and(|extension| TEXTS.iter().any(|text| extension == *text))
}

fn retired(line: &str) -> impl Iterator<Item = &'static str> {
    let is_used = |word: &&str| {
        line.match_indices(*word).any(|(at, _)| {
            let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
            let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
            // "manieth" and "manyth" are endings of longer words.
            !is_letter(after) && (!is_letter(before) || word.ends_with("th"))
        })
    };
    RETIRED.into_iter().filter(move |word| is_used(word))
}

fn british(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let line = line.to_lowercase();
    // The plural of "analysis" is the same in both spellings.
    let line = line.replace("analyses", "");
    BRITISH.into_iter().filter(move |(word, _)| line.contains(word))
}

/// Valid targets of citations: files, and headings of documents.
struct Documents {
    files: BTreeSet<PathBuf>,
    headings: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl Documents {
    fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut headings = BTreeMap::new();
        for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
            let text = fs::read_to_string(root().join(path))?;
            headings.insert(path.clone(), text.lines().filter_map(heading).collect());
        }
        Ok(Self { files: files.iter().cloned().collect(), headings })
    }

    /// Returns the citations of one line that have no target.
    fn wrong_citations(&self, path: &Path, line: &str) -> Vec<String> {
        let is_document = path.extension().is_some_and(|extension| extension == "md");
        let folder = path.parent().unwrap_or(Path::new(""));
        let links = links(line).filter(|_| is_document).filter(|link| !self.has_link(path, folder, link));
        let named = cited_files(line).filter(|cited| !self.has_file(folder, cited));
        links.chain(named).map(str::to_owned).collect()
    }

    fn has_link(&self, path: &Path, folder: &Path, link: &str) -> bool {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { path.to_owned() } else { normal(&folder.join(file)) };
        let has_anchor = || self.headings.get(&target).is_some_and(|headings| headings.contains(anchor));
        let is_folder = || self.files.iter().any(|known| known.starts_with(&target));
        (self.files.contains(&target) || is_folder()) && (anchor.is_empty() || has_anchor())
    }

    /// Returns true if the file exists. A comment names it by its path from the root or from its own folder, or by the
    /// end of its path.
    fn has_file(&self, folder: &Path, cited: &str) -> bool {
        let (file, anchor) = cited.split_once('#').unwrap_or((cited, ""));
        let from_here = normal(&folder.join(file));
        let found = self.files.iter().find(|known| **known == from_here || known.ends_with(file));
        let has_anchor =
            |known: &PathBuf| self.headings.get(known).is_some_and(|headings| headings.contains(anchor));
        found.is_some_and(|known| anchor.is_empty() || has_anchor(known))
    }
}

/// Returns the anchor of a Markdown heading: lower case, with dashes for spaces and without punctuation.
fn heading(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

/// Returns the targets of a line's Markdown links that are in this repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).filter(|target| !target.contains("://"))
}

/// Returns the words of a line that are paths of documents or sources: with a folder, and without placeholders.
fn cited_files(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-' | '#');
    let words = line.split(move |letter| !is_part(letter)).map(|word| word.trim_matches(['.', '/']));
    words.filter(|word| {
        let file = word.split_once('#').map_or(*word, |(file, _)| file);
        let is_source = [".md", ".rs"].iter().any(|extension| file.ends_with(extension));
        is_source && file.contains('/') && !file.starts_with("target/") && !line.contains("://")
    })
}

/// Removes `.` and `..` from a path.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}
