//! What a job spends its time on, in one sentence.

use wire::views::{Account, AccountEntry, Spending, Verdict};

/// The number of things that are named.
const MAX_NAMED: usize = 4;
/// The least share of the steps' time that is named.
const MIN_SHARE: f64 = 0.03;
/// The share of the steps' time from which a job without a verdict is bound by its compute.
const BOUND: f64 = 0.6;

/// Returns the sentence, which is about the time in steps. Empty if there is none.
pub(crate) fn spent(account: &Account, verdicts: &[Verdict]) -> String {
    match in_steps(account, verdicts) {
        none if none.is_empty() => none,
        said => said + &is_short(account),
    }
}

fn in_steps(account: &Account, verdicts: &[Verdict]) -> String {
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
    if verdicts.is_empty() && useful >= BOUND {
        return format!(
            "Nothing slows the job: {} of the time in steps is compute ({list}). Lower precision, larger batches or faster kernels \
             would make the job faster.",
            units::percent(useful)
        );
    }
    format!("The time in steps goes to: {list}.")
}

/// Says that a job is short, if its start takes most of its time: before anything else slows such a job, it is over. Empty otherwise.
fn is_short(account: &Account) -> String {
    let start = account.of(Spending::Start);
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
