//! The order of a table's rows.

use std::cmp::Ordering;

/// What a row is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub enum SortKey {
    /// A number. NaN stands for an unknown value and comes last, whichever way the table is sorted.
    Number(f64),
    /// A text. Digits in it are compared as numbers, so that `rank 9` comes before `rank 10`.
    Text(String),
    /// Nothing: the row keeps its place.
    None,
}

/// The column by which a table is sorted, and the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// The index of the column.
    pub column: usize,
    /// True if the smallest comes first.
    pub is_ascending: bool,
}

impl Sort {
    /// Returns the order after a click on the heading of `column`: the largest first, then the smallest first, then the
    /// given order.
    #[must_use]
    pub fn next(sort: Option<Self>, column: usize) -> Option<Self> {
        match sort.filter(|sort| sort.column == column) {
            None => Some(Self { column, is_ascending: false }),
            Some(Self { is_ascending: false, .. }) => Some(Self { column, is_ascending: true }),
            Some(Self { is_ascending: true, .. }) => None,
        }
    }
}

/// Returns the indices below `count` in the order of `sort`. `key` returns what (row, column) is sorted by. Equal rows
/// keep their order.
#[must_use]
pub fn sorted(count: usize, sort: Option<Sort>, key: impl Fn(usize, usize) -> SortKey) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let Some(Sort { column, is_ascending }) = sort else { return order };
    let keys: Vec<SortKey> = order.iter().map(|&row| key(row, column)).collect();
    order.sort_by(|&a, &b| compare(&keys[a], &keys[b], is_ascending));
    order
}

fn compare(a: &SortKey, b: &SortKey, is_ascending: bool) -> Ordering {
    let directed = |order: Ordering| if is_ascending { order } else { order.reverse() };
    match (a, b) {
        (SortKey::Number(a), SortKey::Number(b)) => match (a.is_nan(), b.is_nan()) {
            (false, false) => directed(a.total_cmp(b)),
            (a, b) => a.cmp(&b),
        },
        (SortKey::Text(a), SortKey::Text(b)) => directed(compare_texts(a, b)),
        _ => Ordering::Equal,
    }
}

/// Compares texts piece by piece, digits as numbers and everything else without regard to case.
fn compare_texts(a: &str, b: &str) -> Ordering {
    pieces(a).cmp(pieces(b))
}

/// A piece of a text: a number, or one other character.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Number(u64),
    Character(char),
}

fn pieces(text: &str) -> impl Iterator<Item = Piece> {
    let mut characters = text.chars().flat_map(char::to_lowercase).peekable();
    std::iter::from_fn(move || {
        let first = characters.next()?;
        let Some(digit) = first.to_digit(10) else { return Some(Piece::Character(first)) };
        let mut number = u64::from(digit);
        while let Some(digit) = characters.peek().and_then(|next| next.to_digit(10)) {
            number = number.saturating_mul(10).saturating_add(digit.into());
            characters.next();
        }
        Some(Piece::Number(number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(column: usize, is_ascending: bool) -> Option<Sort> {
        Some(Sort { column, is_ascending })
    }

    #[test]
    fn unknown_numbers_come_last_in_both_directions() {
        let values = [2.0, f64::NAN, 1.0, 2.0, -1.0];
        let order = |sort| sorted(values.len(), sort, |row, _| SortKey::Number(values[row]));
        assert_eq!(order(sort(0, true)), [4, 2, 0, 3, 1]);
        assert_eq!(order(sort(0, false)), [0, 3, 2, 4, 1]);
        assert_eq!(order(None), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn digits_in_texts_are_compared_as_numbers() {
        let texts = ["node10", "node9", "Node1", "api"];
        let order = sorted(texts.len(), sort(0, true), |row, _| SortKey::Text(texts[row].into()));
        let found: Vec<&str> = order.into_iter().map(|row| texts[row]).collect();
        assert_eq!(found, ["api", "Node1", "node9", "node10"]);
    }

    #[test]
    fn three_clicks_on_a_heading_lead_back_to_the_given_order() {
        let first = Sort::next(None, 3);
        let second = Sort::next(first, 3);
        assert_eq!([first, second, Sort::next(second, 3)], [sort(3, false), sort(3, true), None]);
        assert_eq!(Sort::next(second, 1), sort(1, false), "another column begins with its largest");
    }
}
