//! Names and threads of events, by number: there are few different ones.

use std::collections::HashMap;

use wire::traces::{MAX_TRACE_NAME_BYTES, OTHER_NAMES};

use super::event::Written;

/// The largest number of different names that are kept of a trace. Others count as one.
const MAX_NAMES: usize = 65_536;
/// The number of the names beyond [`MAX_NAMES`].
const OTHER: u32 = 0;

/// Names by number.
#[derive(Debug)]
pub(crate) struct Names(HashMap<Box<str>, u32>);

impl Default for Names {
    fn default() -> Self {
        Self(HashMap::from([(OTHER_NAMES.into(), OTHER)]))
    }
}

impl Names {
    /// Returns the number of a name, which is cut at [`MAX_TRACE_NAME_BYTES`].
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        let name = &name[..name.floor_char_boundary(MAX_TRACE_NAME_BYTES)];
        if let Some(&number) = self.0.get(name) {
            return number;
        }
        if self.0.len() >= MAX_NAMES {
            return OTHER;
        }
        let number = self.0.len() as u32;
        self.0.insert(name.into(), number);
        number
    }

    /// Returns the names, by number.
    pub(crate) fn into_texts(self) -> Vec<Box<str>> {
        let mut numbered: Vec<(Box<str>, u32)> = self.0.into_iter().collect();
        numbered.sort_unstable_by_key(|(_, number)| *number);
        numbered.into_iter().map(|(name, _)| name).collect()
    }
}

/// Threads of the host by number. A process and a thread are a number in some traces and a text in others.
#[derive(Debug, Default)]
pub(super) struct Threads {
    numbers: HashMap<(String, String), u32>,
    /// The thread of the event before: that of the next one as well, more often than not.
    newest: Option<((String, String), u32)>,
}

impl Threads {
    /// Returns the number of the thread of an event.
    pub(super) fn number(&mut self, event: &Written<'_>) -> u32 {
        let (process, thread) = event.thread();
        if let Some(((of, newest), number)) = &self.newest
            && of == process
            && newest == thread
        {
            return *number;
        }
        let next = self.numbers.len() as u32;
        let key = (process.to_owned(), thread.to_owned());
        let number = *self.numbers.entry(key.clone()).or_insert(next);
        self.newest = Some((key, number));
        number
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
