//! The loss ledger as a waterfall from the ideal step to the measured one.

use leptos::prelude::*;
use viz::palette::{self, Rgba};
use wire::live::Part;
use wire::views::what_if::{EfficiencyKind, Loss, LossLedger};
use wire::views::{Figure, Report};

use crate::cells::text;
use crate::html::{Html, shown};
use crate::live::Live;

/// Creates the panel.
pub fn losses() -> AnyView {
    let live = expect_context::<Live>();
    let content = text(move || {
        let html = Html::default().raw("<div class=panel-head><h2>Where efficiency goes");
        let Some(run) = live.run.get() else { return html.raw("</h2></div>").done() };
        let below = match run.report.loss_ledger.known().map(|ledger| ledger.kind) {
            Some(EfficiencyKind::Implied) => " implied: compute as a share of the step",
            Some(EfficiencyKind::Measured) => " measured: against the baseline run",
            None => "",
        };
        ledger(html.el("small", below).raw("</h2></div>"), &run.report).done()
    });
    view! { <section class="panel" aria-label="Efficiency" data-testid="losses">{shown("", content)}</section> }
        .into_any()
}

/// Returns the color of a loss: that of the part of the step in which the time is lost.
fn colour(loss: Loss) -> Option<Rgba> {
    match loss {
        Loss::Imbalance | Loss::ExposedWait => Some(palette::part(Part::ExposedWait)),
        Loss::ExposedTransfer => Some(palette::part(Part::ExposedTransfer)),
        Loss::Input => Some(palette::part(Part::Input)),
        Loss::Other => Some(palette::part(Part::Other)),
        // Compute is forward and backward together, which have no common color.
        Loss::ComputeDrift => None,
    }
}

fn means(loss: Loss) -> &'static str {
    match loss {
        Loss::ComputeDrift => "compute takes longer than in the baseline run",
        Loss::Imbalance => "waiting for ranks whose local work is longer in the mean",
        Loss::ExposedWait => "waiting for whichever rank happens to be last",
        Loss::ExposedTransfer => "transfers that compute does not hide",
        Loss::Input => "input and its copies to the device",
        Loss::Other => "time in no phase",
    }
}

fn ledger(html: Html, report: &Report) -> Html {
    let LossLedger { kind, efficiency, losses, residual } = match &report.loss_ledger {
        Figure::Known(ledger) => ledger,
        Figure::Missing { missing: reason } => return html.el("p class=quiet", &reason.to_string()),
    };
    let mut left = 1.0;
    let html = html
        .raw("<table class=losses><caption class=unseen>From the ideal step to the measured one, as shares of the step")
        .raw("</caption><tbody>");
    let html = total(html, "ideal", 1.0).each(losses, |html, &(loss, share)| {
        left -= share;
        row(html, loss.name(), means(loss), share, left, colour(loss))
    });
    let html = row(html, "residual", "not explained by the losses", *residual, left - residual, None);
    let name = match kind {
        EfficiencyKind::Implied => "implied efficiency",
        EfficiencyKind::Measured => "measured efficiency",
    };
    total(html, name, *efficiency).raw("</tbody></table>")
}

/// Appends a row whose bar begins at 0.
fn total(html: Html, name: &str, share: f64) -> Html {
    html.raw("<tr class=sum>")
        .el("th scope=row", name)
        .number(&units::percent(share))
        .raw("<td class=bar-cell>")
        .bar(0.0, share, None)
        .raw("</td></tr>")
}

/// Appends a row whose bar begins where the previous one ends; `left` remains.
fn row(html: Html, name: &str, means: &str, share: f64, left: f64, colour: Option<Rgba>) -> Html {
    let html = html.raw("<tr title=\"").text(means).raw("\"><th scope=row>");
    let html = colour.into_iter().fold(html, Html::swatch);
    html.text(name)
        .raw("</th>")
        .number(&signed_percent(-share))
        .raw("<td class=bar-cell>")
        .bar(left.min(left + share), left.max(left + share), colour)
        .raw("</td></tr>")
}

fn signed_percent(share: f64) -> String {
    // The minus is as long as the plus, and 0 has none.
    match share {
        0.0 => "0 %".into(),
        s if s < 0.0 => format!("−{}", units::percent(-s)),
        s => format!("+{}", units::percent(s)),
    }
}
