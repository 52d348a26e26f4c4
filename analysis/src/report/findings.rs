//! The verdicts and notes of a report, and what they say of the account.

use wire::views::{Account, BucketStats, Missing, Spending};

use super::is_observed;
use super::observed::Observed;
use crate::account::{self, StepAccount};
use crate::evidence::{self, Code, Sources};
use crate::finding::{Finding, Reason};
use crate::hosts::Hosts;
use crate::step::StepAnalysis;
use crate::verdict::{self, Findings, Setting};
use crate::{outside, slowed};

/// The findings, and the reason why there can be no verdict, if so.
pub(super) fn findings(observed: &Observed<'_>, buckets: &[BucketStats]) -> (Findings, Option<Missing>) {
    let (found, missing) = match observed.reasons.only_enqueued {
        true => (Findings::default(), Some(Missing::OnlyEnqueued)),
        false => judged(observed, buckets),
    };
    if let Some(Missing::Unclear { function, .. }) = observed.reasons.unclear
        && observed.facts.is_imported()
        && found.verdicts.is_empty()
    {
        let missing = verdict::late_at_unknown_cost(&observed.steps, function).or(missing);
        return (found, missing);
    }
    (found, missing)
}

fn judged(observed: &Observed<'_>, buckets: &[BucketStats]) -> (Findings, Option<Missing>) {
    let Observed { facts, steps, .. } = observed;
    let course: Vec<&StepAnalysis> =
        facts.course.iter().map(AsRef::as_ref).filter(|step| is_observed(step)).collect();
    let setting = Setting {
        computed_on: facts.computed_on(),
        notable_share: facts.notable_share,
        hidden_steps: &facts.hidden_steps,
        course: &course,
        is_recorded: facts.is_imported(),
        is_on_bare_metal: facts.is_on_bare_metal(),
        has_only_collectives: observed.has_only_collectives(),
    };
    let (mut found, missing) = verdict::judge(steps, &setting);
    let sources = sources(observed, buckets);
    slowed::add(&mut found, steps, &sources.hosts, &facts.device_states, facts.notable_share);
    let is_one_host = facts.is_one_host();
    found.all().for_each(|finding| finding.is_one_host = is_one_host);
    evidence::explain(&mut found, &sources);
    found.settle(steps, &setting);
    if let Ok(goodput) = &facts.goodput {
        let accounts: Vec<StepAccount> = steps.iter().filter_map(|step| StepAccount::new(step)).collect();
        outside::add(&mut found, goodput, &accounts, &facts.start_waits, facts.notable_share);
    }
    found.all().for_each(|finding| finding.is_alone = facts.ranks == 1);
    (found, missing)
}

fn sources<'a>(observed: &'a Observed<'_>, buckets: &'a [BucketStats]) -> Sources<'a> {
    let facts = observed.facts;
    Sources {
        code: Code {
            stacks: &facts.stacks,
            long_steps: &facts.long_steps,
            lines: &facts.span_lines,
            fits: &facts.fits,
            steps: &observed.steps,
        },
        device_states: &facts.device_states,
        hosts: Hosts { ranks: &facts.hosts, fits: &facts.fits },
        bursts: &facts.bursts,
        compared: facts.compared_traces.as_deref(),
        summaries: &facts.summaries,
        buckets,
        infers_compute: observed.infers_compute(),
        has_only_collectives: observed.has_only_collectives(),
    }
}

/// Where the wall time goes. Only findings tell waits within passes from compute.
pub(super) fn account(observed: &Observed<'_>, findings: &[Finding]) -> Account {
    if observed.has_only_collectives() {
        return Account::default();
    }
    let steps: Vec<StepAccount> = observed.steps.iter().filter_map(|step| StepAccount::new(step)).collect();
    let goodput = observed.facts.goodput.as_ref().ok().filter(|_| observed.facts.has_all_steps);
    let account = account::account(&steps, goodput);
    let waits = findings.iter().filter(|finding| finding.reason == Some(Reason::WaitsInPasses));
    let nanos: f64 =
        waits.map(|finding| finding.verdict.cost_nanos_per_step as f64 * steps.len() as f64).sum();
    account::move_time(account, Spending::Compute, Spending::WaitsInPasses, nanos)
}
