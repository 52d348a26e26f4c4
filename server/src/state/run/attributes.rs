//! The attributes of a run's ranks: which of them all ranks share, and which ranks have which.

use std::borrow::Cow;
use std::collections::BTreeMap;

use wire::attributes::{Attributes, MAX_NAME_BYTES, MAX_VALUE_BYTES};
use wire::views::{AttributeKind, AttributeRanks};

use super::Run;
use crate::printable::one_line;

/// The largest number of [`AttributeRanks`] in a report. A label that differs between all ranks takes one for each.
const MAX_LISTED: usize = 16_384;

impl Run {
    /// Returns the labels on which all ranks that have sent attributes agree.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let mut all = self.ranks.iter().filter_map(|(_, rank)| rank.attributes.as_ref());
        let mut labels = all.next().map(|first| first.labels.clone()).unwrap_or_default();
        for other in all {
            labels.retain(|name, value| other.labels.get(name) == Some(value));
        }
        labels
    }

    /// Returns the attributes of the ranks, labels first, by name and rank, with neighbors of one value together.
    pub(super) fn attributes(&self) -> Vec<AttributeRanks> {
        let mut listed: BTreeMap<(AttributeKind, &str), Vec<AttributeRanks>> = BTreeMap::new();
        for (rank, state) in self.ranks.iter() {
            let Some(attributes) = &state.attributes else { continue };
            for (kind, name, value) in pairs(attributes) {
                let ranges = listed.entry((kind, name)).or_default();
                let rank = rank as u32;
                match ranges.last_mut() {
                    Some(last) if last.value == value && last.ranks.1 + 1 == rank => last.ranks.1 = rank,
                    _ => ranges.push(AttributeRanks {
                        kind,
                        name: name.to_owned(),
                        value: value.to_owned(),
                        ranks: (rank, rank),
                    }),
                }
            }
        }
        listed.into_values().flatten().take(MAX_LISTED).collect()
    }
}

fn pairs(attributes: &Attributes) -> impl Iterator<Item = (AttributeKind, &str, &str)> {
    let labels =
        attributes.labels.iter().map(|(name, value)| (AttributeKind::Label, name.as_str(), value.as_str()));
    let software = attributes.software.iter();
    labels.chain(software.map(|(name, value)| (AttributeKind::Software, name.as_str(), value.as_str())))
}

/// Escapes and shortens the texts, which appear in lines and tables of reports.
pub(super) fn with_printable_texts(attributes: Attributes) -> Attributes {
    let printable = |texts: BTreeMap<String, String>| {
        let texts = texts.into_iter();
        texts.map(|(name, value)| (short(&name, MAX_NAME_BYTES), short(&value, MAX_VALUE_BYTES))).collect()
    };
    Attributes { labels: printable(attributes.labels), software: printable(attributes.software) }
}

fn short(text: &str, most: usize) -> String {
    let text: Cow<'_, str> = one_line(text);
    text[..text.floor_char_boundary(most)].to_owned()
}
