//! Reports and summaries of a run, and the input that a report needs to be made on another thread.

use std::sync::Arc;

use analysis::report::{self, RunFacts};
use analysis::step::StepAnalysis;
use wire::batch::Instrumentation;
use wire::clock::ServerNanos;
use wire::ids::{Rank, Step};
use wire::layout::Layout;
use wire::views::{
    Gap, GapKind, HostRanks, Missing, RankDrops, RankEvent, RankEventKind, Report, RunSummary, WorstVerdict,
};

use super::faults::Faults;
use super::{REPORTING_NANOS, RankState, Run};
use crate::state::budget::RECENT_STEPS;

/// The largest number of events in a report.
const MAX_EVENTS: usize = 64;

/// The largest number of reports that are made to find past faults.
const MAX_PARTIAL_REPORTS: usize = 32;

/// The input of a report. Making the report takes up to a second for many ranks and happens on another thread.
pub struct ReportWork {
    facts: RunFacts,
    gaps: Vec<Gap>,
    steps: Vec<Arc<StepAnalysis>>,
}

impl ReportWork {
    /// Makes the report.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = self.report_over(&self.steps);
        report.gaps.extend(self.gaps.iter().cloned());
        report
    }

    /// Makes the report, and completes it with the faults that [partial reports](Self::partial_reports) find. A fault that
    /// takes few of many steps costs too little of all of them for a verdict.
    #[must_use]
    pub fn report_with_past_faults(&self) -> Report {
        let mut faults = Faults::default();
        for mut partial in self.partial_reports() {
            faults.complete(&mut partial);
        }
        let mut report = self.report();
        faults.complete(&mut report);
        report
    }

    /// Makes reports over [`RECENT_STEPS`] of the steps each, oldest first. Each begins half a report after the one before
    /// it, so a fault of up to half a report lies whole in one of them. They cover more steps each if there would be more
    /// than [`MAX_PARTIAL_REPORTS`]. There are none if one report covers all steps.
    #[must_use]
    pub fn partial_reports(&self) -> Vec<Report> {
        if self.steps.len() <= RECENT_STEPS {
            return Vec::new();
        }
        let half = self.steps.len().div_ceil(MAX_PARTIAL_REPORTS + 1).max(RECENT_STEPS / 2);
        let halves: Vec<&[Arc<StepAnalysis>]> = self.steps.chunks(half).collect();
        halves.windows(2).map(|two| self.report_over(&two.concat())).collect()
    }

    fn report_over(&self, steps: &[Arc<StepAnalysis>]) -> Report {
        let steps: Vec<&StepAnalysis> = steps.iter().map(Arc::as_ref).collect();
        report::report(&self.facts, &steps)
    }
}

impl Run {
    /// Returns the facts for a report over steps of `ranks` ranks.
    fn facts(&self, ranks: usize, now: ServerNanos) -> RunFacts {
        let drops = |(rank, state): (usize, &RankState)| RankDrops {
            rank: Rank(rank as u32),
            drops: state.incarnations.drops(),
        };
        let layouts: Vec<Arc<Layout>> = self.layouts_of_rank_0().cloned().collect();
        RunFacts {
            run: self.id.clone(),
            name: self.name().to_owned(),
            state: self.state(now),
            ranks: ranks as u32,
            sample_unit: self.sample_unit().to_owned(),
            instrumentation: self.instrumentation(),
            fits: self.fits().into_iter().take(ranks).collect(),
            drops: self.ranks.iter().map(drops).filter(|rank| !rank.drops.is_empty()).collect(),
            hang: self.hang(),
            failure: self.failure(now),
            events: self.events(now),
            placement: self.placement(),
            attributes: self.attributes(),
            device_states: self
                .ranks
                .first(ranks)
                .map(|rank| rank.map(|rank| rank.devices.device_states()).unwrap_or_default())
                .collect(),
            hosts: self.ranks.first(ranks).map(|rank| rank?.host()).collect(),
            device_memory: self
                .ranks
                .first(ranks)
                .map(|rank| rank.map(|rank| rank.devices.memory()))
                .collect(),
            bursts: self.ranks.first(ranks).map(|rank| rank?.devices.activity(now)).collect(),
            stacks: self.ranks.first(ranks).map(|rank| rank?.stacks.newest().cloned()).collect(),
            long_steps: self.long_steps(ranks),
            span_lines: self.span_lines(ranks),
            work: self.ranks.first(ranks).map(|rank| rank.map(RankState::work)).collect(),
            other_layouts: self.other_layouts(&layouts),
            layouts,
            compared_traces: self.traced.clone(),
            summaries: self.ranks.first(ranks).map(|rank| rank?.summary.clone()).collect(),
            notable_share: self.notable_share,
            hidden_steps: self.recalled.hidden().map(|step| step.0).collect(),
            goodput: self.goodput(now),
            course: Vec::new(),
            start_waits: self
                .ranks
                .first(ranks)
                .map(|rank| rank.map_or(0, |rank| rank.start_waits))
                .collect(),
            has_all_steps: true,
        }
    }

    /// Returns the unit of a sample, as rank 0 or the first rank that has reported it states it.
    fn sample_unit(&self) -> &str {
        let known = self.ranks.iter().find_map(|(_, rank)| {
            let workload = rank.workload.as_ref().map(|workload| workload.sample_unit.as_str());
            let hello = rank.hello.as_ref().map(|hello| hello.sample_unit.as_str());
            workload.filter(|unit| !unit.is_empty()).or(hello)
        });
        known.unwrap_or("samples")
    }

    /// Returns what happened to ranks, oldest first: the newest [`MAX_EVENTS`] events.
    fn events(&self, now: ServerNanos) -> Vec<RankEvent> {
        let is_over = self.is_over(now);
        let events_of_rank = |(rank, state): (usize, &RankState)| {
            let event = move |kind, at: ServerNanos| RankEvent {
                kind,
                rank: Rank(rank as u32),
                unix_millis: millis(at),
            };
            let silent = state.last_seen.filter(|&seen| {
                let still_expected = state.bye.is_none() && !is_over;
                still_expected && now - seen >= REPORTING_NANOS
            });
            let restarts: Vec<RankEvent> =
                state.incarnations.restarts().map(|at| event(RankEventKind::Restarted, at)).collect();
            let errors: Vec<RankEvent> =
                state.device_errors.iter().map(|(at, kind)| event(kind, at)).collect();
            let silent = silent.map(|at| event(RankEventKind::Silent, at));
            restarts.into_iter().chain(errors).chain(silent)
        };
        let mut events: Vec<RankEvent> = self.ranks.iter().flat_map(events_of_rank).collect();
        events.sort_by_key(|event| event.unix_millis);
        events.split_off(events.len().saturating_sub(MAX_EVENTS))
    }

    /// Returns the host of each rank that has named its host, with neighbors on one host together.
    fn placement(&self) -> Vec<HostRanks> {
        let mut placed: Vec<HostRanks> = Vec::new();
        for (rank, state) in self.ranks.iter() {
            let Some(host) = state.hello.as_ref().map(|hello| &hello.host) else { continue };
            let rank = rank as u32;
            match placed.last_mut() {
                Some(last) if last.host == *host && last.ranks.1 + 1 == rank => last.ranks.1 = rank,
                _ => placed.push(HostRanks { host: host.clone(), ranks: (rank, rank) }),
            }
        }
        placed
    }

    /// Returns the input of a report over the newest `most` steps in memory.
    #[must_use]
    pub fn report_work(&self, most: usize, now: ServerNanos) -> ReportWork {
        let analyzed = self.steps.analyzed();
        let skipped = analyzed.len().saturating_sub(most);
        let steps = analyzed.iter().skip(skipped).cloned().collect();
        let (ranks, steps, others) = self.keep_one_world(steps);
        let has_all_steps = skipped == 0 && others.is_none() && self.steps.has_all_analyzed();
        let course = if skipped == 0 { Vec::new() } else { self.course(ranks) };
        let facts = RunFacts { has_all_steps, course, ..self.facts(ranks, now) };
        ReportWork { facts, gaps: self.gaps(others, now), steps }
    }

    /// Returns steps that are spread evenly over those in memory, which show what grows over hours: as many as a live report covers, of
    /// those that ran on `ranks` ranks.
    fn course(&self, ranks: usize) -> Vec<Arc<StepAnalysis>> {
        let analyzed = self.steps.analyzed();
        let stride = analyzed.len().div_ceil(RECENT_STEPS).max(1);
        analyzed.iter().step_by(stride).filter(|step| step.ranks.len() == ranks).cloned().collect()
    }

    /// Returns the steps that ran on as many ranks as the newest one, with this number, and a gap if there are others. Figures
    /// over steps of different numbers of ranks would mean nothing.
    fn keep_one_world(
        &self,
        mut steps: Vec<Arc<StepAnalysis>>,
    ) -> (usize, Vec<Arc<StepAnalysis>>, Option<Gap>) {
        let ranks = steps.last().map_or(self.ranks.world_size(), |step| step.ranks.len());
        let all = steps.len();
        steps.retain(|step| step.ranks.len() == ranks);
        let others = all - steps.len();
        let gap = (others > 0).then(|| Gap {
            kind: GapKind::OtherWorlds,
            sentence: format!(
                "{} {} another number of ranks than {ranks}, and {} left out",
                units::count(others as u64),
                if others == 1 { "step has" } else { "steps have" },
                if others == 1 { "is" } else { "are" }
            ),
        });
        (ranks, steps, gap)
    }

    /// Returns the input of a report over the steps in memory from `first` to `last`, as of the time when the last of
    /// them was the newest. Without `first`, the report covers the `most` steps up to `last`.
    #[must_use]
    pub fn report_work_between(
        &self,
        first: Option<Step>,
        last: Step,
        most: usize,
        now: ServerNanos,
    ) -> ReportWork {
        let analyzed = self.steps.analyzed();
        let past = analyzed.partition_point(|step| step.step <= last);
        let start = match first {
            Some(first) => analyzed.partition_point(|step| step.step < first).min(past),
            None => past.saturating_sub(most),
        };
        let (ranks, steps, others) = self.keep_one_world(analyzed.range(start..past).cloned().collect());
        let goodput = Err(Missing::PartOfRun);
        let has_all_steps = false;
        let facts = RunFacts { hang: None, failure: None, goodput, has_all_steps, ..self.facts(ranks, now) };
        ReportWork { facts, gaps: self.gaps(others, now), steps }
    }

    /// Returns the report over the newest `most` steps in memory.
    #[must_use]
    pub fn report(&self, most: usize, now: ServerNanos) -> Report {
        self.report_work(most, now).report()
    }

    /// Returns the run's summary. Its figures are from `report`, which must be a report of this run.
    #[must_use]
    pub fn summary(&self, report: &Report, now: ServerNanos) -> RunSummary {
        let is_over = self.is_over(now);
        let reports = |rank: &&RankState| {
            rank.last_seen.is_some_and(|seen| is_over || (rank.bye.is_none() && now - seen < REPORTING_NANOS))
        };
        let failure = report.failure.as_ref().map(|failure| failure.sentence.clone());
        let verdict = || report.verdicts.first().map(|verdict| verdict.sentence.clone());
        RunSummary {
            run: self.id.clone(),
            name: report.name.clone(),
            labels: self.labels(),
            state: report.state,
            started_unix_millis: millis(self.first_seen),
            last_seen_unix_millis: millis(self.last_seen),
            ranks_expected: self.world_size(),
            most_ranks: self.ranks.largest() as u32,
            imported: self.instrumentation() == Instrumentation::Trace,
            ranks_reporting: self.ranks.iter().map(|(_, rank)| rank).filter(reports).count() as u32,
            steps: self.completed_steps,
            last_step: self.steps.analyzed().back().map(|step| step.step.0),
            step_time_nanos: report.period_nanos.value().map(|mean| mean as u64),
            throughput: report.throughput.value(),
            batch: report.batch.value(),
            sample_unit: report.sample_unit.clone(),
            overlap_ratio: report.overlap_ratio.value(),
            efficiency_implied: report.scaling_efficiency.implied.value(),
            verdict: failure.or_else(verdict),
            hang: self.hang(),
            worst: report.verdicts.first().map(WorstVerdict::from),
            step_times: self.steps.course().means(),
        }
    }
}

/// Returns a time in milliseconds since the Unix epoch.
pub(super) fn millis(time: ServerNanos) -> u64 {
    time.0.max(0).unsigned_abs() / 1_000_000
}
