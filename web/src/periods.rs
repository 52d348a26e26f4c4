//! The reports over two periods of the run: now, and the healthy period. Every view that says how a fault shows uses
//! them, so that healthy steps do not dilute its figures.

use std::sync::Arc;

use leptos::prelude::*;
use model::periods::{Periods, periods};
use wire::views::Report;

use crate::api;
use crate::live::Live;
use crate::route::RunId;

/// The reports over both periods.
#[derive(Clone, Copy)]
pub struct Compared {
    /// The report over the steps since the fault began or ended; over all shown steps if nothing stands out.
    pub now: Signal<Option<Arc<Report>>>,
    /// The report over the healthy period, if there is one apart from now.
    pub healthy: Signal<Option<Arc<Report>>>,
}

/// Returns the steps of a report in words: `steps 120 to 239`.
pub fn steps(report: &Report) -> Option<String> {
    let (first, last) = report.step_range?;
    Some(format!("steps {} to {}", units::count(first), units::count(last)))
}

impl Compared {
    /// Follows the shown report.
    pub fn new() -> Self {
        let run = expect_context::<RunId>();
        let periods = shown_periods();
        let healthy = report_over(run, Memo::new(move |_| periods.get().healthy));
        Self {
            now: report_now(periods),
            healthy: Signal::derive(move || {
                let is_now = periods.with(|periods| periods.healthy == periods.now);
                healthy.get().flatten().filter(|_| !is_now)
            }),
        }
    }
}

/// Returns the report over the steps since the worst fault began or ended; over all shown steps if nothing stands out.
pub fn fault_report() -> Signal<Option<Arc<Report>>> {
    report_now(shown_periods())
}

/// Returns the periods of the shown steps, whether the user has selected them or not.
fn shown_periods() -> Memo<Periods> {
    let live = expect_context::<Live>();
    Memo::new(move |_| {
        live.run.with(|shown| {
            shown.as_ref().map_or(Periods::default(), |shown| {
                periods(&shown.report.verdicts, shown.report.step_range, shown.report.state.has_ended())
            })
        })
    })
}

fn report_now(periods: Memo<Periods>) -> Signal<Option<Arc<Report>>> {
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let steps = Memo::new(move |_| periods.get().now);
    let fetched = report_over(run, steps);
    // The copy is made once for all that read it. Comparing reports would cost more than drawing them again.
    let report = Memo::new_with_compare(
        move |_| {
            let fetched = fetched.get().flatten().filter(|_| steps.get().is_some());
            fetched.or_else(|| live.run.get().map(|shown| Arc::new(shown.report.clone())))
        },
        |_, _| true,
    );
    report.into()
}

/// Fetches the report over `steps` whenever they change. The old report stays until the next one arrives.
fn report_over(run: RunId, steps: Memo<Option<(u64, u64)>>) -> LocalResource<Option<Arc<Report>>> {
    LocalResource::new(move || {
        let (id, steps) = (run.get(), steps.get());
        async move { api::report(&id, Some(steps?)).await.ok().map(Arc::new) }
    })
}
