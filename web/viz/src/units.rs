//! How figures are written: three significant digits, a unit, a space between them.

use std::fmt;

/// A number with so many decimals. The library's way of writing floats is exact to the last bit, knows exponents and
/// the shortest form, and is 15 KB of the download; a figure needs none of that.
#[must_use]
pub fn fixed(value: f64, decimals: usize) -> Fixed {
    Fixed { value, decimals, signed: false }
}

/// The same with its sign, also of what is above 0.
#[must_use]
pub fn signed(value: f64, decimals: usize) -> Fixed {
    Fixed { value, decimals, signed: true }
}

/// A number with more of them would not fit: 2^64 has 20 digits.
const MOST_DECIMALS: usize = 19;

/// A number that is written with a fixed number of decimals, at most 19, the half rounded away from 0. It saturates
/// beyond 2^64 units of the last one.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    value: f64,
    decimals: usize,
    signed: bool,
}

impl fmt::Display for Fixed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_nan() {
            return out.write_str("NaN");
        }
        let decimals = self.decimals.min(MOST_DECIMALS);
        let unit = 10_u64.pow(decimals as u32);
        let units = (self.value.abs() * unit as f64).round() as u64;
        // Nothing is not negative.
        match (units, self.value < 0.0, self.signed) {
            (1.., true, _) => out.write_str("-")?,
            (_, false, true) => out.write_str("+")?,
            _ => {}
        }
        write!(out, "{}", units / unit)?;
        if decimals > 0 { write!(out, ".{:0width$}", units % unit, width = decimals) } else { Ok(()) }
    }
}

/// A duration in nanoseconds: `812 ns`, `12.3 µs`, `35.2 ms`, `1.20 s`, `2 min 03 s`.
#[must_use]
pub fn nanos(nanos: f64) -> String {
    let (scale, unit) = nanos_scale(nanos.abs());
    if unit == "min" {
        return clock(nanos / 1e9);
    }
    format!("{} {unit}", significant(nanos / scale))
}

/// A difference in nanoseconds, with its sign: `+1.20 ms`.
#[must_use]
pub fn signed_nanos(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", nanos(value))
}

/// The unit that suits `nanos`, and how many nanoseconds it has.
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

/// A long duration in seconds: `3 s`, `4 min 05 s`, `2 h 10 min`, `3 d 4 h`.
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

/// How long ago something was; a coarse figure that does not flicker.
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

/// A whole number with thousands apart: `12,304`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A ratio as percent: `18.2 %`.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent.abs() {
        0.0 => "0 %".into(),
        p if p < 0.05 => format!("{} %", fixed(percent, 2)),
        p if p < 99.95 => format!("{} %", fixed(percent, 1)),
        _ => format!("{} %", fixed(percent, 0)),
    }
}

/// A payload: `512 B`, `25.0 MiB`.
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

/// A rate with a decimal prefix: `1.23 GB/s` for `rate(1.23e9, "B/s")`.
#[must_use]
pub fn rate(value: f64, unit: &str) -> String {
    let (scale, prefix) = match value.abs() {
        v if v < 999.5 => (1.0, ""),
        v if v < 999.5e3 => (1e3, "k"),
        v if v < 999.5e6 => (1e6, "M"),
        v if v < 999.5e9 => (1e9, "G"),
        _ => (1e12, "T"),
    };
    // A prefix belongs to a symbol; before a word it stands alone.
    let space = if prefix.is_empty() || unit.len() <= 3 { "" } else { " " };
    format!("{} {prefix}{space}{unit}", significant(value / scale))
}

/// Three significant digits, no exponent.
#[must_use]
pub fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.0005 => "~0".into(),
        v if v < 0.9995 => fixed(value, 3).to_string(),
        v if v < 9.995 => fixed(value, 2).to_string(),
        v if v < 99.95 => fixed(value, 1).to_string(),
        _ => fixed(value, 0).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans far below a nanosecond, which odd frames have, want more decimals than a number holds.
    #[test]
    fn a_number_has_no_more_decimals_than_fit() {
        assert_eq!(fixed(0.5, 64).to_string(), "0.5000000000000000000");
        assert_eq!(fixed(2.0, 19).to_string(), "1.8446744073709551615", "it saturates");
    }

    #[test]
    fn durations_carry_their_unit() {
        let written = [0.0, 812.0, 12_340.0, 999_600.0, 35.2e6, 1.2e9, 59.99e9, 123e9].map(nanos);
        assert_eq!(
            written,
            ["0 ns", "812 ns", "12.3 µs", "1.00 ms", "35.2 ms", "1.20 s", "60.0 s", "2 min 03 s"]
        );
        assert_eq!(signed_nanos(1.2e6), "+1.20 ms");
        assert_eq!(signed_nanos(-300.0), "-300 ns");
        assert_eq!(clock(93_784.0), "1 d 2 h");
        assert_eq!([ago(0.4), ago(61.0), ago(7300.0)], ["just now", "1 min ago", "2 h ago"]);
    }

    #[test]
    fn fixed_decimals_are_written_as_the_library_writes_them() {
        for (value, decimals) in [
            (0.0, 0),
            (0.05, 1),
            (-3.456, 2),
            (999.9996, 3),
            (12_345.678, 1),
            (-0.001, 2),
            (7.0, 9),
            (1e15, 1),
        ] {
            let library = format!("{value:.decimals$}").replace("-0.00", "0.00");
            assert_eq!(fixed(value, decimals).to_string(), library, "{value} with {decimals}");
        }
        assert_eq!([signed(0.25, 1), signed(-2.0, 0)].map(|n| n.to_string()), ["+0.3", "-2"]);
        assert_eq!(
            [fixed(f64::NAN, 1), fixed(f64::INFINITY, 0)].map(|n| n.to_string()),
            ["NaN", "18446744073709551615"]
        );
    }

    #[test]
    fn counts_ratios_and_rates() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.182, 0.0001, 1.0, -0.034, 0.0].map(percent),
            ["18.2 %", "0.01 %", "100 %", "-3.4 %", "0 %"]
        );
        assert_eq!([512, 26_214_400, 1 << 40].map(bytes), ["512 B", "25.0 MiB", "1.00 TiB"]);
        assert_eq!(rate(1.23e9, "B/s"), "1.23 GB/s");
        assert_eq!(rate(48_211.0, "samples/s"), "48.2 k samples/s");
        assert_eq!(rate(640.0, "samples/s"), "640 samples/s");
    }
}
