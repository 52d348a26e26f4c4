//! The accuracy that a job states by its label `accuracy`.

use wire::attributes::ACCURACY;
use wire::views::{AttributeKind, AttributeRanks};

/// Returns the accuracy in a run's attributes; `None` if no rank states one.
///
/// # Errors
/// Returns the reason why the accuracy is unknown: what a rank states is not a number, or the ranks state different numbers.
pub(super) fn stated(attributes: &[AttributeRanks]) -> Result<Option<f64>, String> {
    let mut known: Option<(f64, &AttributeRanks)> = None;
    for stated in
        attributes.iter().filter(|stated| stated.kind == AttributeKind::Label && stated.name == ACCURACY)
    {
        let (rank, text) = (stated.ranks.0, &stated.value);
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        let number = number
            .ok_or_else(|| format!("rank {rank} states the accuracy {text:?}, which is not a number"))?;
        match known {
            Some((other, first)) if other != number => {
                return Err(format!(
                    "rank {} states the accuracy {}, and rank {rank} states {text}",
                    first.ranks.0, first.value
                ));
            }
            _ => known = Some((number, stated)),
        }
    }
    Ok(known.map(|(number, _)| number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str, value: &str, rank: u32) -> AttributeRanks {
        let kind = AttributeKind::Label;
        AttributeRanks { kind, name: name.into(), value: value.into(), ranks: (rank, rank) }
    }

    #[test]
    fn the_accuracy_is_the_label_of_any_rank_that_states_it() {
        assert_eq!(stated(&[label("team", "0.5", 0)]), Ok(None));
        assert_eq!(stated(&[label("team", "nlp", 0), label("accuracy", "0.973", 2)]), Ok(Some(0.973)));
        assert_eq!(stated(&[label("accuracy", "0.50", 0), label("accuracy", "0.5", 1)]), Ok(Some(0.5)));
        let software = AttributeRanks { kind: AttributeKind::Software, ..label("accuracy", "1.2.3", 0) };
        assert_eq!(stated(&[software]), Ok(None));
    }

    #[test]
    fn an_accuracy_that_is_unclear_is_unknown_and_says_why() {
        let reason = |attributes: &[AttributeRanks]| stated(attributes).unwrap_err();
        for text in ["97.3 %", "high", "", "NaN", "inf"] {
            let expected = format!("rank 3 states the accuracy {text:?}, which is not a number");
            assert_eq!(reason(&[label("accuracy", text, 3)]), expected);
        }
        let two = [label("accuracy", "0.97", 0), label("accuracy", "0.96", 1)];
        assert_eq!(reason(&two), "rank 0 states the accuracy 0.97, and rank 1 states 0.96");
    }
}
