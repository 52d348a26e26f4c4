//! The report as Markdown with tables, for a ticket or a chat.

use std::fmt::{self, Write as _};

use wire::views::LatencyHistogram;

use super::{Body, Cell, Document, Section, Statement, Table};
use units::nanos;

/// Renders a report as Markdown.
#[must_use]
pub fn markdown(document: &Document) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut out, document);
    out
}

fn write(out: &mut String, document: &Document) -> fmt::Result {
    writeln!(out, "# {} ({})", plain(&document.name), plain(&document.run))?;
    document.headlines.iter().try_for_each(|line| writeln!(out, "\n**{}**", plain(line)))?;
    document.verdicts.iter().try_for_each(|verdict| statement(out, verdict))?;
    document.past_faults.iter().try_for_each(|fault| writeln!(out, "\nEarlier fault: {}", plain(fault)))?;
    for note in &document.notes {
        writeln!(out, "\nNote: {}\\\n{}\n", plain(&note.sentence), plain(&note.details))?;
        reasons(out, note)?;
    }
    let scope: Vec<String> = document.scope.iter().map(|line| plain(line)).collect();
    writeln!(out, "\n{}", scope.join("; "))?;
    document.sections.iter().try_for_each(|listed| section(out, listed))
}

fn statement(out: &mut String, verdict: &Statement) -> fmt::Result {
    writeln!(out, "\n**{}**\\\n{}\n", plain(&verdict.sentence), plain(&verdict.details))?;
    reasons(out, verdict)
}

/// Writes the evidence and the advice of a verdict or a note.
fn reasons(out: &mut String, verdict: &Statement) -> fmt::Result {
    verdict.evidence.iter().try_for_each(|line| writeln!(out, "- for: {}", plain(line)))?;
    verdict.counter_evidence.iter().try_for_each(|line| writeln!(out, "- against: {}", plain(line)))?;
    if verdict.advice.is_empty() { Ok(()) } else { writeln!(out, "\nWhat to do: {}", plain(&verdict.advice)) }
}

fn section(out: &mut String, section: &Section) -> fmt::Result {
    writeln!(out, "\n## {}\n", section.title)?;
    if !section.introduction.is_empty() {
        writeln!(out, "{}\n", plain(&section.introduction.join(" ")))?;
    }
    match &section.body {
        Body::Figures(figures) => {
            writeln!(out, "| | |\n|---|---|")?;
            let mut row =
                |(name, value): &(String, String)| writeln!(out, "| {} | {} |", plain(name), plain(value));
            figures.iter().try_for_each(&mut row)
        }
        Body::Table(table) => self::table(out, table),
    }
}

fn table(out: &mut String, table: &Table) -> fmt::Result {
    let head: Vec<String> = table.head.iter().map(|name| plain(name)).collect();
    writeln!(out, "| {} |\n|---|{}", head.join(" | "), "---:|".repeat(head.len().saturating_sub(1)))?;
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(cell).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    if table.left_out > 0 {
        writeln!(out, "\n{} more rows are not shown.", table.left_out)?;
    }
    Ok(())
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => plain(text),
        Cell::Histogram(histogram) => range(histogram).unwrap_or_default(),
    }
}

/// Returns the range of transfers as text, from the first to the last bin that is not empty. Returns `None` if all bins
/// are empty.
pub(super) fn range(histogram: &LatencyHistogram) -> Option<String> {
    let is_there = |count: &u32| *count > 0;
    let first = histogram.transfers.iter().position(is_there)? as u32;
    let last = histogram.transfers.iter().rposition(is_there)? as u32;
    let begin = |bin: u32| nanos(LatencyHistogram::begin(histogram.first + bin));
    Some(format!("transfers {} to {}", begin(first), begin(last + 1)))
}

/// Writes text so that Markdown shows it as it is. Names of runs and kernels come from the job and are not trusted.
///
/// Characters of Markdown are escaped. Trackers and chats also act on plain text: they notify whom a word mentions, and make
/// addresses links. No escape keeps them from that, but they leave code alone.
fn plain(text: &str) -> String {
    let ends_word = |c: char| c.is_whitespace() || matches!(c, '|' | '`');
    let mut plain = String::with_capacity(text.len());
    for piece in text.split_inclusive(ends_word) {
        let word = piece.strip_suffix(ends_word).unwrap_or(piece);
        if is_acted_on(word) {
            plain.push('`');
            plain.push_str(word);
            plain.push('`');
        } else {
            escape(word, &mut plain);
        }
        escape(&piece[word.len()..], &mut plain);
    }
    plain
}

/// Returns true for a word that mentions someone, or that becomes a link: an address, or the number of an issue.
fn is_acted_on(word: &str) -> bool {
    let starts_www = |at: usize| word.get(at..at + 4).is_some_and(|text| text.eq_ignore_ascii_case("www."));
    let before_digit = |at: usize| word[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    word.contains('@')
        || word.contains("://")
        || word.char_indices().any(|(at, c)| match c {
            'w' | 'W' => starts_www(at),
            '#' | '!' => before_digit(at),
            _ => false,
        })
}

fn escape(text: &str, out: &mut String) {
    let mut previous = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let is_within_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_markup = match character {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '&' | '#' | '~' | '$' => true,
            // Between letters it is a letter itself, as in most names of functions.
            '_' => !(is_within_word(previous) && is_within_word(characters.peek().copied())),
            _ => false,
        };
        if is_markup {
            out.push('\\');
        }
        out.push(if matches!(character, '\n' | '\r') { ' ' } else { character });
        previous = Some(character);
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn words_that_trackers_act_on_are_code_and_markup_is_escaped() {
        for (text, shown) in [
            ("ask @team now", "ask `@team` now"),
            ("see https://evil.example/?a|b", "see `https://evil.example/?a`\\|b"),
            ("(WWW.evil.example) me@evil.example", "`(WWW.evil.example)` `me@evil.example`"),
            ("fixes #12, !7 and # 3", "fixes `#12,` `!7` and \\# 3"),
            ("`@a`@b", "\\``@a`\\``@b`"),
            ("_it_ char_lm __init__ *b* ~~s~~", "\\_it\\_ char_lm \\_\\_init\\_\\_ \\*b\\* \\~\\~s\\~\\~"),
            ("<img src=x> [a](b)\nc", "\\<img src=x\\> \\[a\\](b) c"),
            ("größe 48 % of 3.5 ms", "größe 48 % of 3.5 ms"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }
}
