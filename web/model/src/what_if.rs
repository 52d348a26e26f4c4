//! The sliders of the what-if panel: what each position means, and the request that all of them make.

/// A slider. Its positions are whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slider {
    /// The key of the position in the address.
    pub key: &'static str,
    /// The name on the page.
    pub name: &'static str,
    /// What it changes.
    pub means: &'static str,
    /// The first and the last position.
    pub ends: (i32, i32),
    pub value: Value,
}

/// The value that a slider changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The number of ranks, in powers of two.
    Ranks,
    /// The bandwidth of all links.
    Bandwidth,
    /// The bandwidth of one node's link.
    Link,
    /// The latency of a collective.
    Latency,
    /// The compression ratio of gradients.
    Compression,
    /// The bucket cap.
    Cap,
}

/// The sliders, from top to bottom.
pub const SLIDERS: [Slider; 6] = [
    Slider {
        key: "if-ranks",
        name: "Ranks",
        means: "The number of ranks, with the batch per rank unchanged.",
        ends: (0, 14),
        value: Value::Ranks,
    },
    Slider {
        key: "if-bandwidth",
        name: "Bandwidth",
        means: "The bandwidth of all links, as a multiple of the measured one.",
        ends: (-8, 8),
        value: Value::Bandwidth,
    },
    Slider {
        key: "if-link",
        name: "Link of one node",
        means: "The bandwidth of one node's link, as a share of that of the others.",
        ends: (1, 20),
        value: Value::Link,
    },
    Slider {
        key: "if-latency",
        name: "Latency",
        means: "The latency of a collective, as a multiple of the measured one.",
        ends: (-8, 8),
        value: Value::Latency,
    },
    Slider {
        key: "if-compression",
        name: "Compression",
        means: "The bytes of the gradients / the bytes that are sent.",
        ends: (0, 20),
        value: Value::Compression,
    },
    Slider {
        key: "if-cap",
        name: "Bucket cap",
        means: "The size at which a bucket is full.",
        ends: (-6, 16),
        value: Value::Cap,
    },
];

impl Slider {
    /// Returns the position that a text names; `None` if it names none.
    #[must_use]
    pub fn position(&self, text: &str) -> Option<i32> {
        text.parse().ok().filter(|position| (self.ends.0..=self.ends.1).contains(position))
    }

    /// Returns the position at which the slider stands while it changes nothing. `ranks` are those of the run, and `cap` is the
    /// largest bucket, in bytes.
    #[must_use]
    pub fn unchanged(&self, ranks: u32, cap: u64) -> i32 {
        let position = match self.value {
            Value::Ranks => f64::from(ranks.max(1)).log2(),
            Value::Cap => 2.0 * (cap.max(1) as f64 / f64::from(1 << 20)).log2(),
            Value::Link => f64::from(self.ends.1),
            Value::Bandwidth | Value::Latency | Value::Compression => 0.0,
        };
        (position.round() as i32).clamp(self.ends.0, self.ends.1)
    }

    /// Returns the value at a position, in the unit of the request.
    fn value_at(&self, position: i32) -> f64 {
        let position = f64::from(position);
        match self.value {
            Value::Ranks => position.exp2(),
            Value::Link => position / f64::from(self.ends.1),
            Value::Bandwidth | Value::Latency | Value::Compression | Value::Cap => (position / 2.0).exp2(),
        }
    }

    /// Writes the value at a position.
    #[must_use]
    pub fn written(&self, position: i32) -> String {
        let value = self.value_at(position);
        match self.value {
            Value::Ranks => units::ranks(value as u32),
            Value::Link => units::percent(value),
            Value::Bandwidth | Value::Latency => format!("{} ×", short(value)),
            Value::Compression if position == 0 => "none".into(),
            Value::Compression => format!("{} : 1", short(value)),
            Value::Cap => format!("{} MiB", short(value)),
        }
    }

    fn parameter(&self) -> &'static str {
        match self.value {
            Value::Ranks => "ranks",
            Value::Bandwidth => "bandwidth",
            Value::Link => "link",
            Value::Latency => "latency",
            Value::Compression => "compression",
            Value::Cap => "cap_mib",
        }
    }
}

/// Writes a number with three significant digits, without zeros at its end.
fn short(value: f64) -> String {
    let text = units::significant(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Returns the query of the request for these positions, in the order of [`SLIDERS`]. `None` changes nothing.
#[must_use]
pub fn query(positions: &[Option<i32>; SLIDERS.len()]) -> String {
    let changed = SLIDERS.iter().zip(positions).filter_map(|(slider, position)| Some((slider, (*position)?)));
    changed
        .map(|(slider, position)| format!("&{}={}", slider.parameter(), slider.value_at(position)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_values_and_only_changed_ones_are_requested() {
        let [ranks, bandwidth, link, _, compression, cap] = SLIDERS;
        assert_eq!(ranks.written(6), "64 ranks");
        assert_eq!(bandwidth.written(-2), "0.5 ×");
        assert_eq!(link.written(10), "50.0 %");
        assert_eq!((compression.written(0), compression.written(2)), ("none".into(), "2 : 1".into()));
        assert_eq!(cap.written(-2), "0.5 MiB");
        let query = query(&[Some(3), None, Some(5), None, Some(2), Some(4)]);
        assert_eq!(query, "&ranks=8&link=0.25&compression=2&cap_mib=4");
    }

    #[test]
    fn a_slider_stands_where_the_run_is() {
        let unchanged = SLIDERS.map(|slider| slider.unchanged(4, 4 << 20));
        assert_eq!(unchanged, [2, 0, 20, 0, 0, 4]);
        assert_eq!(SLIDERS[0].unchanged(65_536, 0), 14);
    }

    #[test]
    fn a_text_that_is_no_position_is_none() {
        let texts = ["7", "-8", "9", "", "1e3"];
        assert_eq!(texts.map(|text| SLIDERS[1].position(text)), [Some(7), Some(-8), None, None, None]);
    }
}
