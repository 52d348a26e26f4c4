//! Names, threads and groups of events, by number: there are few different ones.

use std::collections::HashMap;
use std::hash::Hash;

use wire::traces::{MAX_TRACE_NAME_BYTES, OTHER_NAMES};

use super::event::Written;
use crate::group::Group;

/// The largest number of different names that are kept of a trace. Others count as one.
const MAX_NAMES: usize = 65_536;
/// The number of the names beyond [`MAX_NAMES`].
const OTHER: u32 = 0;

/// Different things, numbered from 0 in the order in which they came first.
#[derive(Debug)]
pub(super) struct Numbered<T>(HashMap<T, u32>);

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash> Numbered<T> {
    pub(super) fn number(&mut self, name: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(name).or_insert(next)
    }

    /// Adds those of a part that follows. Returns their numbers here, by their numbers there.
    pub(super) fn append(&mut self, next: Self) -> Vec<u32> {
        next.into_sorted().into_iter().map(|name| self.number(name)).collect()
    }

    pub(super) fn into_sorted(self) -> Vec<T> {
        let mut numbered: Vec<(T, u32)> = self.0.into_iter().collect();
        numbered.sort_unstable_by_key(|(_, number)| *number);
        numbered.into_iter().map(|(name, _)| name).collect()
    }
}

/// Groups by number.
pub(super) type Groups = Numbered<Group>;

/// Names by number.
#[derive(Debug)]
pub(crate) struct Names(Numbered<Box<str>>);

impl Default for Names {
    fn default() -> Self {
        Self(Numbered(HashMap::from([(OTHER_NAMES.into(), OTHER)])))
    }
}

impl Names {
    /// Returns the number of a name, which is cut at [`MAX_TRACE_NAME_BYTES`].
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        let name = &name[..name.floor_char_boundary(MAX_TRACE_NAME_BYTES)];
        let Numbered(numbers) = &self.0;
        match numbers.get(name) {
            Some(&number) => number,
            None if numbers.len() >= MAX_NAMES => OTHER,
            None => self.0.number(name.into()),
        }
    }

    /// Adds the names of a part that follows. Returns their numbers here, by their numbers there.
    pub(super) fn append(&mut self, next: Self) -> Vec<u32> {
        next.into_texts().iter().map(|name| self.number(name)).collect()
    }

    pub(crate) fn into_texts(self) -> Vec<Box<str>> {
        self.0.into_sorted()
    }
}

/// Threads of the host by number. A process and a thread are a number in some traces and a text in others.
#[derive(Debug, Default)]
pub(super) struct Threads {
    numbers: Numbered<(String, String)>,
    /// The thread of the event before: that of the next one as well, more often than not.
    newest: Option<((String, String), u32)>,
}

impl Threads {
    pub(super) fn number(&mut self, event: &Written<'_>) -> u32 {
        let (process, thread) = event.thread();
        if let Some(((newest_process, newest_thread), number)) = &self.newest
            && newest_process == process
            && newest_thread == thread
        {
            return *number;
        }
        let key = (process.to_owned(), thread.to_owned());
        let number = self.numbers.number(key.clone());
        self.newest = Some((key, number));
        number
    }

    /// Adds the threads of a part that follows. Returns their numbers here, by their numbers there.
    pub(super) fn append(&mut self, next: Self) -> Vec<u32> {
        self.numbers.append(next.numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_count_as_one_and_long_names_are_cut() {
        let mut names = Names::default();
        let numbers: Vec<u32> = ["b", "a", "b"].iter().map(|name| names.number(name)).collect();
        assert_eq!(numbers, [1, 2, 1]);
        let long = "ö".repeat(MAX_TRACE_NAME_BYTES);
        assert_eq!(names.number(&long), names.number(&format!("{long}2")));
        (0..MAX_NAMES).for_each(|at| {
            names.number(&at.to_string());
        });
        assert_eq!(names.number("one more"), OTHER);
        let texts = names.into_texts();
        assert_eq!((texts.len(), &*texts[0], &*texts[2]), (MAX_NAMES, OTHER_NAMES, "a"));
        assert_eq!(texts[3].len(), MAX_TRACE_NAME_BYTES);
    }
}
