//! Ranges of whole numbers as the address contains them. `30..149` includes both ends, as in the API.

use viz::span::Span;

/// Formats the whole numbers that a range shows, even in part.
#[must_use]
pub fn write(range: Span) -> String {
    let (first, last) = ends(range);
    format!("{first}..{last}")
}

/// Returns the first and the last whole number that a range shows, even in part.
#[must_use]
pub fn ends(range: Span) -> (u64, u64) {
    let first = range.start.floor().max(0.0);
    (first as u64, (range.end.ceil() - 1.0).max(first) as u64)
}

/// Parses what [`write`] formats; `None` if it is not a range.
#[must_use]
pub fn read(text: &str) -> Option<Span> {
    let (first, last) = text.split_once("..")?;
    let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
    (first <= last).then(|| Span::new(first.into(), f64::from(last) + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_ends_are_included() {
        assert_eq!(read("30..149"), Some(Span::new(30.0, 150.0)));
        assert_eq!(ends(Span::new(30.4, 149.2)), (30, 149));
        assert_eq!(ends(Span::new(30.0, 150.0)), (30, 149));
        assert_eq!(ends(Span::new(30.2, 30.4)), (30, 30));
    }

    #[test]
    fn what_is_no_range_is_none() {
        assert_eq!(["", "..", "7", "9..3", "-1..2", "a..b", "1..5000000000"].map(read), [None; 7]);
    }

    proptest! {
        #[test]
        fn a_written_range_reads_the_same(first in 0u32..u32::MAX, more in 0u32..1000) {
            let span = Span::new(first.into(), f64::from(first.saturating_add(more)) + 1.0);
            prop_assert_eq!(read(&write(span)), Some(span));
        }
    }
}
