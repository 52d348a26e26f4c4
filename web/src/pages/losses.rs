//! Where efficiency goes: a waterfall from the ideal step to the one that is measured.

use leptos::prelude::*;
use viz::palette::{self, Rgba};
use viz::units;
use wire::live::Part;
use wire::views::Report;
use wire::views::what_if::{EfficiencyKind, Loss, LossLedger};

use crate::cells::{part, text};
use crate::live::Live;
use crate::widgets::{Bar, Swatch, reason};

/// The panel.
#[component]
pub fn Losses() -> impl IntoView {
    let live = expect_context::<Live>();
    let below = text(move || {
        let kind = live.run.get().and_then(|shown| Some(shown.report.loss_ledger.as_ref()?.kind));
        match kind {
            Some(EfficiencyKind::Implied) => " implied: useful compute as a share of the step".into(),
            Some(EfficiencyKind::Measured) => " measured: against the baseline run".into(),
            None => String::new(),
        }
    });
    let body = part(move || match live.run.get() {
        Some(shown) => ledger(&shown.report),
        None => ().into_any(),
    });
    view! {
        <section class="panel" aria-label="Efficiency" data-testid="losses">
            <div class="panel-head"><h2>"Where efficiency goes"<small>{below}</small></h2></div>
            {body}
        </section>
    }
    .into_any()
}

/// A loss has the colour of the part of the step it is time of.
fn colour(loss: Loss) -> Option<Rgba> {
    match loss {
        Loss::Imbalance | Loss::ExposedWait => Some(palette::part(Part::ExposedWait)),
        Loss::ExposedTransfer => Some(palette::part(Part::ExposedTransfer)),
        Loss::Input => Some(palette::part(Part::Input)),
        Loss::Other => Some(palette::part(Part::Other)),
        // Compute is forward and backward together, which has no colour of its own.
        Loss::ComputeDrift => None,
    }
}

fn means(loss: Loss) -> &'static str {
    match loss {
        Loss::ComputeDrift => "compute takes longer than in the baseline run",
        Loss::Imbalance => "waiting for ranks that always have more to do",
        Loss::ExposedWait => "waiting for whoever happened to be last",
        Loss::ExposedTransfer => "transfers that nothing hides",
        Loss::Input => "input and its copies to the device",
        Loss::Other => "time in no phase",
    }
}

fn ledger(report: &Report) -> AnyView {
    let Some(LossLedger { kind, efficiency, losses, residual }) = &report.loss_ledger else {
        return view! { <p class="quiet">{reason(report, "loss_ledger")}</p> }.into_any();
    };
    let mut left = 1.0;
    let mut rows: Vec<AnyView> = vec![row("ideal".into(), "", 1.0, (0.0, 1.0), None, true)];
    for &(loss, share) in losses {
        let (from, to) = (left - share, left);
        left = from;
        rows.push(row(loss.name().into(), means(loss), -share, (from, to), colour(loss), false));
    }
    rows.push(row(
        "residual".into(),
        "what the losses leave unexplained",
        -residual,
        (left - residual, left),
        None,
        false,
    ));
    let name = match kind {
        EfficiencyKind::Implied => "implied efficiency",
        EfficiencyKind::Measured => "measured efficiency",
    };
    rows.push(row(name.into(), "", *efficiency, (0.0, *efficiency), None, true));
    view! {
        <table class="losses">
            <caption class="unseen">"From the ideal step to the measured one, as shares of the step"</caption>
            <tbody>{rows}</tbody>
        </table>
    }
    .into_any()
}

/// A bar between two shares; totals stand on the ground, losses hang below the row before.
fn row(
    name: String,
    means: &'static str,
    share: f64,
    (from, to): (f64, f64),
    colour: Option<Rgba>,
    total: bool,
) -> AnyView {
    let swatch = colour.map(|colour| view! { <Swatch colour=colour /> });
    let value = if total { units::percent(share) } else { signed_percent(share) };
    view! {
        <tr class:sum=total title=means>
            <th scope="row">{swatch}{name}</th>
            <td class="number">{value}</td>
            <td class="bar-cell"><Bar from=from.min(to) to=to.max(from) colour=colour /></td>
        </tr>
    }
    .into_any()
}

fn signed_percent(share: f64) -> String {
    // Minus as long as the plus, and no minus before a nought.
    match share {
        s if s == 0.0 => "0 %".into(),
        s if s < 0.0 => format!("−{}", units::percent(-s)),
        s => format!("+{}", units::percent(s)),
    }
}
