//! The workload that the job stated, until the observer thread sends it.

use std::sync::{Mutex, PoisonError};

use wire::workload::{MAX_UNIT_BYTES, Workload};

/// The newest workload, and how many the job has stated.
static NEWEST: Mutex<(u64, Option<Workload>)> = Mutex::new((0, None));

/// Remembers a workload, written as JSON. Text that is not a workload is ignored.
pub(crate) fn learn(json: &str) {
    let Ok(workload) = serde_json::from_str::<Workload>(json) else { return };
    if workload.sample_unit.len() <= MAX_UNIT_BYTES {
        let mut newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = (newest.0 + 1, Some(workload));
    }
}

/// Returns the newest workload and its number, if its number is larger than `sent`.
pub(crate) fn newer_than(sent: u64) -> Option<(u64, Workload)> {
    let newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    let (number, workload) = (newest.0, newest.1.clone()?);
    (number > sent).then_some((number, workload))
}

#[cfg(test)]
mod tests {
    use wire::workload::Precision;

    use super::*;

    #[test]
    fn each_rank_takes_the_newest_workload_once_and_other_text_is_ignored() {
        let json = |samples: u64| {
            format!(
                r#"{{"samples_per_step":{samples},"sample_unit":"tokens","flops_per_sample":6,
                "hardware_flops_per_sample":0,"precision":"bf16","peak_flops_per_second":0,"is_peak_measured":false}}"#
            )
        };
        learn("");
        learn("{}");
        assert_eq!(newer_than(0), None);
        learn(&json(1));
        learn(&json(2));
        let (number, newest) = newer_than(0).unwrap();
        assert_eq!((newest.samples_per_step, newest.precision), (2, Some(Precision::Bf16)));
        assert_eq!(newer_than(number), None);
    }
}
