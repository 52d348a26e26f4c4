//! Makes untrusted text safe to print. Names and reasons come from whatever sends batches.

use std::borrow::Cow;

/// Escapes the characters of `text` that control a terminal or hide other characters: control characters except newline
/// and tab, and invisible or direction-changing marks.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| (c.is_control() && c != '\n' && c != '\t') || hides(c))
}

/// Escapes like [`printable`], and line breaks too: a name or a reason with a line break could pass for a line of a
/// report.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() || hides(c))
}

fn hides(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_bad(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{one_line, printable};

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "a\x1b]0;owned\x07\u{9b}31m\r\u{202e}b";
        let shown = printable(hostile);
        assert_eq!(shown, "a\\u{1b}]0;owned\\u{7}\\u{9b}31m\\r\\u{202e}b");
        assert!(matches!(printable("größe, 2 µs\n\tfine"), Cow::Borrowed(_)));
    }

    #[test]
    fn line_breaks_in_a_name_are_escaped() {
        assert_eq!(one_line("job\nRank 0 failed\x1b[1m"), "job\\nRank 0 failed\\u{1b}[1m");
        assert!(matches!(one_line("größe 2"), Cow::Borrowed(_)));
    }
}
