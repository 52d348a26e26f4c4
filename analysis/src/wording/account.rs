//! What a job spends its time on, in one sentence.

use wire::views::{Account, AccountEntry, FlopsUtilization, Missing, Spending, Verdict};

/// The number of things that are named.
const MAX_NAMED: usize = 4;
/// The least share of the steps' time that is named.
const MIN_SHARE: f64 = 0.03;
/// The share of the steps' time from which a job without a verdict is bound by its compute.
const BOUND: f64 = 0.6;

/// Returns the sentence, which is about the time in steps. Empty if there is none. `unclear` says why it is not known how much
/// of it is compute, if so.
pub(crate) fn spent(
    account: &Account,
    verdicts: &[Verdict],
    flops: Option<&FlopsUtilization>,
    unclear: Option<&Missing>,
) -> String {
    match steps_sentence(account, verdicts, flops, unclear) {
        none if none.is_empty() => none,
        said => said + &is_short(account),
    }
}

fn steps_sentence(
    account: &Account,
    verdicts: &[Verdict],
    flops: Option<&FlopsUtilization>,
    unclear: Option<&Missing>,
) -> String {
    let in_steps: Vec<&AccountEntry> =
        account.entries.iter().filter(|entry| is_in_steps(entry.spending)).collect();
    let total: u64 = in_steps.iter().map(|entry| entry.nanos).sum();
    if total == 0 {
        return String::new();
    }
    let share = |entry: &AccountEntry| entry.nanos as f64 / total as f64;
    let useful: f64 =
        in_steps.iter().filter(|entry| entry.spending.is_useful()).map(|entry| share(entry)).sum();
    let named = in_steps.iter().filter(|entry| share(entry) >= MIN_SHARE).take(MAX_NAMED);
    let named: Vec<String> =
        named.map(|entry| format!("{} {}", entry.spending.title(), units::percent(share(entry)))).collect();
    let list = named.join(", ");
    if let Some(reason) = unclear {
        return format!(
            "The time in steps goes to: {list}. How much of it is compute is not known: {reason}."
        );
    }
    if verdicts.is_empty() && useful >= BOUND {
        return format!(
            "Nothing slows the job: {} of the time in steps is compute ({list}). {}",
            units::percent(useful),
            faster(flops)
        );
    }
    format!("The time in steps goes to: {list}.")
}

/// Says what would make a job faster that computes all the time.
fn faster(flops: Option<&FlopsUtilization>) -> String {
    let ways = "Lower precision, larger batches or faster kernels would make the job faster.";
    match flops.and_then(|flops| flops.model.value()) {
        Some(mfu) => format!(
            "Its model does {} of the operations that the devices could (MFU). {ways}",
            units::percent(mfu)
        ),
        None => ways.to_owned(),
    }
}

/// Says that a job is short, if its start takes most of its time: before anything else slows such a job, it is over. Empty otherwise.
fn is_short(account: &Account) -> String {
    let start = account.nanos_of(Spending::Start);
    if !account.is_whole_run || 2 * start < account.wall_nanos {
        return String::new();
    }
    format!(
        " Of {}, the start of the processes took {}: a longer job has that only once.",
        units::nanos(account.wall_nanos as f64),
        units::nanos(start as f64)
    )
}

fn is_in_steps(spending: Spending) -> bool {
    !matches!(
        spending,
        Spending::OtherSteps
            | Spending::Start
            | Spending::Recovery
            | Spending::Repeated
            | Spending::Between
            | Spending::Ending
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(start: u64, compute: u64) -> Account {
        let entries = [(Spending::Start, start), (Spending::Compute, compute)];
        let entries = entries.map(|(spending, nanos)| AccountEntry { spending, nanos }).to_vec();
        Account { wall_nanos: start + compute, is_whole_run: true, entries }
    }

    #[test]
    fn a_short_job_says_how_long_its_start_took() {
        let said = spent(&account(9_000_000_000, 3_000_000_000), &[], None, None);
        assert!(
            said.ends_with(
                " Of 12.0 s, the start of the processes took 9.00 s: a longer job has that only once."
            ),
            "{said}"
        );
        assert!(!spent(&account(9_000_000_000, 30_000_000_000), &[], None, None).contains("start"));
    }

    #[test]
    fn a_job_that_computes_says_how_much_of_its_devices_it_uses() {
        let missing = || wire::views::Missing::NotInFiles.into();
        let flops = FlopsUtilization {
            basis: None,
            model: wire::views::Figure::Known(0.31),
            hardware: missing(),
            model_flops_per_second: missing(),
        };
        let said = spent(&account(0, 3_000_000_000), &[], Some(&flops), None);
        assert!(
            said.contains("Its model does 31.0 % of the operations that the devices could (MFU)."),
            "{said}"
        );
    }
}
