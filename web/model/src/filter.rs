//! Which rows of a table a typed filter finds.

/// Returns true if a row of `cells` has every typed word. A word is found in any part of any cell, without regard to
/// case. A whole number names a row: it is found only in the first cell, as a whole word. `heading` is the heading of the
/// first column, so that `rank 7` finds what `7` finds.
#[must_use]
pub fn finds(typed: &str, heading: &str, cells: &[String]) -> bool {
    let (typed, heading) = (typed.to_lowercase(), heading.to_lowercase());
    let name = cells.first().map(|name| name.replace(',', "")).unwrap_or_default();
    let is_in_name = |number: &str| name.split(|c: char| !c.is_alphanumeric()).any(|word| word == number);
    typed.split_whitespace().filter(|word| *word != heading).all(|word| {
        let number = word.replace(',', "");
        if number.bytes().all(|byte| byte.is_ascii_digit()) {
            is_in_name(&number)
        } else {
            cells.iter().any(|cell| cell.to_lowercase().contains(word))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(typed: &str) -> Vec<&'static str> {
        let rows = [["1", "node-a", "1.07 ms"], ["7", "node-b", "7.00 ms"], ["17", "node-b", "9.00 ms"]];
        let matches = |row: &&[&'static str; 3]| finds(typed, "Rank", &row.map(str::to_owned));
        rows.iter().filter(matches).map(|row| row[0]).collect()
    }

    #[test]
    fn a_number_names_a_row() {
        assert_eq!(found("7"), ["7"]);
        assert_eq!(found("rank 17"), ["17"]);
        assert_eq!(found("2"), [""; 0]);
    }

    #[test]
    fn words_are_found_in_any_cell_and_all_must_be() {
        assert_eq!(found("NODE-b"), ["7", "17"]);
        assert_eq!(found("node-b 9.00"), ["17"]);
        assert_eq!(found("  "), ["1", "7", "17"]);
    }

    #[test]
    fn a_number_is_a_whole_word_of_a_name() {
        let finds_in = |typed: &str, name: &str| finds(typed, "Bucket", &[name.to_owned()]);
        assert!(finds_in("3", "3 · 8 ranks") && finds_in("8 ranks", "3 · 8 ranks"));
        assert!(finds_in("1024", "1,024") && finds_in("1,024", "1,024"));
        assert!(!finds_in("3", "13 · 8 ranks"));
    }
}
