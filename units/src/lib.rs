//! Formats numbers, durations, sizes, rates and shares for the report, the API, the charts and the dashboard: three
//! significant digits, a space, and a unit.

/// Formats a number for programs (CSV, addresses, style sheets) with a fixed number of decimals. Never writes a negative
/// zero.
#[must_use]
pub fn decimal(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(digits) if digits.chars().all(|digit| matches!(digit, '0' | '.')) => digits.to_owned(),
        _ => text,
    }
}

/// Formats a number for people with a fixed number of decimals, a minus sign (U+2212) and thousands separators:
/// `−1,234.5`. Never writes a negative zero.
#[must_use]
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = decimal(value, decimals);
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| (MINUS, digits));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    format!("{sign}{}{fraction}", grouped(whole))
}

const MINUS: &str = "\u{2212}";

/// Formats a number with its sign and a fixed number of decimals: `+0.25`, `−2.00`. A number that rounds to 0 has no
/// sign.
#[must_use]
pub fn signed(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    let is_zero = text.chars().all(|digit| matches!(digit, '0' | '.'));
    if is_zero || value < 0.0 || value.is_nan() { text } else { format!("+{text}") }
}

/// Formats a duration in nanoseconds: `812 ns`, `12.3 µs`, `35.2 ms`, `1.20 s`, `2 min 03 s`. No clock resolves a fraction
/// of a nanosecond, so a mean below half of one is `0 ns`.
#[must_use]
pub fn nanos(nanos: f64) -> String {
    if nanos.abs() < 0.5 {
        return "0 ns".into();
    }
    let (scale, unit) = nanos_scale(nanos.abs());
    if unit == "min" {
        return clock(nanos / 1e9);
    }
    format!("{} {unit}", significant(nanos / scale))
}

/// Formats a difference in nanoseconds, with its sign: `+1.20 ms`. What rounds to 0 has no sign.
#[must_use]
pub fn signed_nanos(value: f64) -> String {
    plus(value.round(), nanos(value))
}

/// Formats a difference of ratios as a percentage, with its sign: `+2.5 %`, `−28 %`.
#[must_use]
pub fn signed_percent(ratio: f64) -> String {
    plus(ratio, percent(ratio))
}

fn plus(value: f64, text: String) -> String {
    if value > 0.0 { format!("+{text}") } else { text }
}

/// Returns the unit for a duration, with its length in nanoseconds.
#[must_use]
pub fn nanos_scale(nanos: f64) -> (f64, &'static str) {
    match nanos {
        n if n < 999.5 => (1.0, "ns"),
        n if n < 999.5e3 => (1e3, "µs"),
        n if n < 999.5e6 => (1e6, "ms"),
        n if n < 120e9 => (1e9, "s"),
        _ => (60e9, "min"),
    }
}

/// Formats a long duration in seconds: `3 s`, `4 min 05 s`, `2 h 10 min`, `3 d 4 h`.
#[must_use]
pub fn clock(seconds: f64) -> String {
    let all = seconds.max(0.0) as u64;
    let (days, hours, minutes, seconds) = (all / 86_400, all / 3600 % 24, all / 60 % 60, all % 60);
    match all {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {seconds:02} s"),
        3600..86_400 => format!("{hours} h {minutes:02} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Formats a difference of shares in points, each a hundredth: `−25.0 points`.
#[must_use]
pub fn points(difference: f64) -> String {
    format!("{} points", signed(difference * 100.0, 1))
}

/// Formats an age in seconds, coarsely, so that it does not flicker: `12 s ago`.
#[must_use]
pub fn ago(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        0..2 => "just now".into(),
        s @ 2..60 => format!("{s} s ago"),
        s @ 60..3600 => format!("{} min ago", s / 60),
        s @ 3600..86_400 => format!("{} h ago", s / 3600),
        s => format!("{} d ago", s / 86_400),
    }
}

/// Formats a whole number with thousands separators: `12,304`.
#[must_use]
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The units that [`unbroken`] keeps with their numbers.
const UNITS: [&str; 12] = ["%", "ns", "µs", "ms", "s", "min", "h", "d", "B", "KiB", "MiB", "GiB"];

/// Keeps each number of a text on one line with its unit, by a space that does not break.
#[must_use]
pub fn unbroken(text: &str) -> String {
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')']));
    let mut out = String::with_capacity(text.len());
    for word in text.split(' ') {
        if !out.is_empty() {
            let is_after_number = out.ends_with(|last: char| last.is_ascii_digit());
            out.push(if is_after_number && is_unit(word) { '\u{a0}' } else { ' ' });
        }
        out.push_str(word);
    }
    out
}

/// Formats a number of ranks: `1 rank`, `1,024 ranks`.
#[must_use]
pub fn ranks(number: u32) -> String {
    let noun = if number == 1 { "rank" } else { "ranks" };
    format!("{} {noun}", count(number.into()))
}

/// Formats a ratio as a percentage: `18.2 %`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent.abs() {
        0.0 => "0 %".into(),
        p if p < 0.005 => "~0 %".into(),
        p if p < 0.05 => format!("{} %", fixed(percent, 2)),
        p if p < 99.95 => format!("{} %", fixed(percent, 1)),
        _ => format!("{} %", fixed(percent, 0)),
    }
}

/// Formats a size in bytes: `512 B`, `25.0 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", significant(value), units[unit])
}

/// Formats the payload of a collective, of which 0 bytes mean that its size is not recorded: `25.0 MiB`, `—`.
#[must_use]
pub fn payload(size: u64) -> String {
    if size == 0 { "—".into() } else { bytes(size) }
}

/// Formats a rate with a decimal prefix: `1.23 GB/s` for `rate(1.23e9, "B/s")`.
#[must_use]
pub fn rate(value: f64, unit: &str) -> String {
    let (scale, prefix) = match value.abs() {
        v if v < 999.5 => (1.0, ""),
        v if v < 999.5e3 => (1e3, "k"),
        v if v < 999.5e6 => (1e6, "M"),
        v if v < 999.5e9 => (1e9, "G"),
        v if v < 999.5e12 => (1e12, "T"),
        _ => (1e15, "P"),
    };
    // A prefix is written together with a symbol, and apart from a word.
    let is_symbol = unit.len() <= 3 || unit.starts_with("FLOP");
    let space = if prefix.is_empty() || is_symbol { "" } else { " " };
    format!("{} {prefix}{space}{unit}", significant(value / scale))
}

/// Formats a number with three significant digits and no exponent.
#[must_use]
pub fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.0005 => "~0".into(),
        v if v < 0.9995 => fixed(value, 3),
        v if v < 9.995 => fixed(value, 2),
        v if v < 99.95 => fixed(value, 1),
        _ => fixed(value, 0),
    }
}

/// Returns the text with its first character in upper case, as a sentence or a column begins.
#[must_use]
pub fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().into_iter().flat_map(char::to_uppercase).chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_in_upper_case() {
        assert_eq!(
            ["rank 2 waits", "ärger", "", "2 ranks"].map(capitalized),
            ["Rank 2 waits", "Ärger", "", "2 ranks"]
        );
    }

    #[test]
    fn durations_carry_their_unit() {
        let written = [0.0, 812.0, 12_340.0, 999_600.0, 35.2e6, 1.2e9, 59.99e9, 123e9].map(nanos);
        assert_eq!(
            written,
            ["0 ns", "812 ns", "12.3 µs", "1.00 ms", "35.2 ms", "1.20 s", "60.0 s", "2 min 03 s"]
        );
        assert_eq!(signed_nanos(1.2e6), "+1.20 ms");
        assert_eq!([-300.0, 0.0, 0.03, -0.03].map(signed_nanos), ["−300 ns", "0 ns", "0 ns", "0 ns"]);
        assert_eq!(clock(93_784.0), "1 d 2 h");
        assert_eq!([ago(0.4), ago(61.0), ago(7300.0)], ["just now", "1 min ago", "2 h ago"]);
    }

    #[test]
    fn a_zero_is_never_negative() {
        let written =
            [(-0.001, 2), (-0.0, 0), (-0.5, 1), (0.04, 1)].map(|(value, decimals)| fixed(value, decimals));
        assert_eq!(written, ["0.00", "0", "−0.5", "0.0"]);
        assert_eq!([signed(0.25, 2), signed(-2.0, 0), signed(-0.001, 1)], ["+0.25", "−2", "0.0"]);
        assert_eq!(
            [signed_percent(0.025), signed_percent(-0.28), signed_percent(0.0)],
            ["+2.5 %", "−28.0 %", "0 %"]
        );
        assert_eq!([fixed(f64::NAN, 1), signed(f64::NAN, 1)], ["NaN", "NaN"]);
    }

    #[test]
    fn numbers_for_people_have_separators_and_numbers_for_programs_do_not() {
        assert_eq!([fixed(-1_234.5, 1), fixed(999.4, 0), fixed(1e6, 0)], ["−1,234.5", "999", "1,000,000"]);
        assert_eq!([decimal(-1_234.5, 1), decimal(-0.001, 2)], ["-1234.5", "0.00"]);
        assert_eq!(rate(2.5e15, "B/s"), "2.50 PB/s");
    }

    #[test]
    fn differences_of_shares_are_points() {
        assert_eq!([points(-0.25), points(0.012)], ["−25.0 points", "+1.2 points"]);
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let kept = unbroken("Rank 2 costs 11 ms (25 % of 3 s).");
        assert_eq!(kept, "Rank 2 costs 11\u{a0}ms (25\u{a0}% of 3\u{a0}s).");
        assert_eq!(unbroken("ranks 1, 2"), "ranks 1, 2");
    }

    #[test]
    fn counts_ratios_and_rates() {
        assert_eq!([0, 1, 1_024].map(ranks), ["0 ranks", "1 rank", "1,024 ranks"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.182, 0.0001, 1.0, -0.034, 0.0, 1e-6].map(percent),
            ["18.2 %", "0.01 %", "100 %", "−3.4 %", "0 %", "~0 %"]
        );
        assert_eq!([512, 26_214_400, 1 << 40].map(bytes), ["512 B", "25.0 MiB", "1.00 TiB"]);
        assert_eq!(rate(1.23e9, "B/s"), "1.23 GB/s");
        assert_eq!(rate(48_211.0, "samples/s"), "48.2 k samples/s");
        assert_eq!(rate(640.0, "samples/s"), "640 samples/s");
    }
}
