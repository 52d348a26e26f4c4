//! Figures of a trace alone, without other ranks: how long the device computed, communicated and did nothing.

use timing::intervals::{Interval, Intervals};

use super::trace::Trace;
use super::work::{Kind, Work};

/// Times of a device, each the length of a union, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// From the begin of the first kernel or copy to the end of the last, or the length of the window.
    pub span_nanos: u64,
    /// Some kernel ran that is not a collective.
    pub compute_nanos: u64,
    /// Some collective ran.
    pub communication_nanos: u64,
    /// Both at once.
    pub hidden_nanos: u64,
    /// Some copy or fill ran.
    pub memory_nanos: u64,
    /// Nothing ran.
    pub idle_nanos: u64,
}

impl Figures {
    /// Returns hidden / communication; `None` if there was no communication.
    #[must_use]
    pub fn overlap(&self) -> Option<f64> {
        (self.communication_nanos > 0).then(|| self.hidden_nanos as f64 / self.communication_nanos as f64)
    }
}

/// Which part of a trace counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// All kernels and copies.
    All,
    /// What HolisticTraceAnalysis counts by default: what was launched before the last marked step began. It leaves out the
    /// last step, whose kernels may be cut. A trace with fewer than two marked steps counts whole.
    WithoutLastStep,
    /// What HolisticTraceAnalysis counts with its last step included: what was launched before the last marked step ended.
    WithLastStep,
}

#[must_use]
pub fn figures(trace: &Trace, window: Window) -> Figures {
    let launched_before = |limit: i64| {
        let launches = trace.launches.iter().filter(move |launch| launch.at < limit);
        launches.map(|launch| launch.correlation).collect::<std::collections::HashSet<u64>>()
    };
    let last = trace.steps.last().filter(|_| trace.steps.len() >= 2);
    let counted = match (window, last) {
        (Window::All, _) | (_, None) => None,
        (Window::WithoutLastStep, Some(last)) => Some(launched_before(last.begin)),
        (Window::WithLastStep, Some(last)) => Some(launched_before(last.end)),
    };
    let work = trace
        .work
        .iter()
        .filter(|work| counted.as_ref().is_none_or(|counted| counted.contains(&work.correlation)));
    let work: Vec<Work> = work.map(|work| as_nccl_has_it(trace, work)).collect();
    work_figures(work.iter(), None)
}

/// Returns the work as HolisticTraceAnalysis sees it: only kernels of NCCL and RCCL communicate.
fn as_nccl_has_it(trace: &Trace, work: &Work) -> Work {
    let is_of_nccl = || trace.names.get(work.name as usize).is_none_or(|name| name.contains("nccl"));
    let kind = if work.kind.is_collective() && !is_of_nccl() { Kind::Compute } else { work.kind };
    Work { kind, ..*work }
}

/// Returns the figures of some work, clipped to `window` if there is one.
#[must_use]
pub fn work_figures<'a>(work: impl Iterator<Item = &'a Work> + Clone, window: Option<Interval>) -> Figures {
    let times = |wanted: fn(Kind) -> bool| {
        let union = Intervals::union(
            work.clone().filter(|work| wanted(work.kind)).map(|work| (work.begin, work.end)),
        );
        window.map_or(union.clone(), |window| union.clip(window))
    };
    let compute = times(|kind| kind == Kind::Compute);
    let communication = times(Kind::is_collective);
    let busy = times(|kind| kind != Kind::Wait);
    let span = window.or_else(|| {
        let (first, last) = (busy.as_slice().first()?, busy.as_slice().last()?);
        Some((first.0, last.1))
    });
    let span_nanos = span.map_or(0, |(begin, end)| (end - begin).max(0).unsigned_abs());
    Figures {
        span_nanos,
        compute_nanos: compute.total(),
        communication_nanos: communication.total(),
        hidden_nanos: compute.intersect(&communication).total(),
        memory_nanos: times(Kind::is_memory).total(),
        idle_nanos: span_nanos - busy.total(),
    }
}
