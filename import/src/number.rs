//! Numbers as traces write them.

/// The largest number of decimals of a microsecond that count: nanoseconds.
const DECIMALS: usize = 3;

/// Converts microseconds, as written, to nanoseconds, rounded to the nearest. A double would not do: near the present, as
/// microseconds since 1970, it has a resolution of a quarter of a microsecond. Returns `None` for anything but a number,
/// and for one that does not fit.
pub(crate) fn nanos(written: &str) -> Option<i64> {
    let (negative, digits) = match written.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, written),
    };
    if digits.bytes().any(|byte| matches!(byte, b'e' | b'E')) {
        let micros: f64 = written.parse().ok()?;
        return (micros.abs() < 9e15).then(|| (micros * 1e3).round() as i64);
    }
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let mut nanos: i64 = whole.parse().ok()?;
    for at in 0..DECIMALS {
        let digit = decimals.as_bytes().get(at).map_or(Some(0), |&byte| digit(byte))?;
        nanos = nanos.checked_mul(10)?.checked_add(digit)?;
    }
    if decimals.as_bytes().get(DECIMALS).is_some_and(|&byte| byte >= b'5') {
        nanos = nanos.checked_add(1)?;
    }
    Some(if negative { -nanos } else { nanos })
}

fn digit(byte: u8) -> Option<i64> {
    byte.is_ascii_digit().then(|| i64::from(byte - b'0'))
}

/// Reads a whole number that may be written as a text or with decimals; `None` for anything else and for negative ones.
pub(crate) fn whole(written: &str) -> Option<u64> {
    let digits = written.trim_matches('"');
    digits.parse().ok().or_else(|| {
        let number: f64 = digits.parse().ok()?;
        ((0.0..9e15).contains(&number) && number.fract() == 0.0).then_some(number as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_become_nanoseconds_without_loss() {
        assert_eq!(nanos("1698955628648197"), Some(1_698_955_628_648_197_000));
        assert_eq!(nanos("4458677009853.422"), Some(4_458_677_009_853_422));
        assert_eq!(nanos("1698955628648197.123456"), Some(1_698_955_628_648_197_123));
        assert_eq!(nanos("0.0005"), Some(1));
        assert_eq!(nanos("-1.5"), Some(-1_500));
        assert_eq!(nanos("1.5e3"), Some(1_500_000));
        for bad in ["", "x", "1.x", "99999999999999999999", "1e300", "\"1\"", "9223372036854775.8075"] {
            assert_eq!(nanos(bad), None, "{bad}");
        }
    }

    #[test]
    fn whole_numbers_may_be_texts() {
        assert_eq!((whole("7"), whole("\"7\""), whole("7.0")), (Some(7), Some(7), Some(7)));
        assert_eq!((whole("-1"), whole("0.5"), whole("[]"), whole("")), (None, None, None, None));
    }
}
