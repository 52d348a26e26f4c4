//! Where efficiency goes: a waterfall from the ideal step to the one that is measured.

use leptos::prelude::*;
use viz::palette::{self, Rgba};
use wire::live::Part;
use wire::views::Report;
use wire::views::what_if::{EfficiencyKind, Loss, LossLedger};

use crate::cells::text;
use crate::html::{Html, shown};
use crate::live::Live;
use crate::widgets::reason;

/// The panel.
pub fn losses() -> AnyView {
    let live = expect_context::<Live>();
    let content = text(move || {
        let html = Html::default().raw("<div class=panel-head><h2>Where efficiency goes");
        let Some(run) = live.run.get() else { return html.raw("</h2></div>").done() };
        let below = match run.report.loss_ledger.as_ref().map(|ledger| ledger.kind) {
            Some(EfficiencyKind::Implied) => " implied: useful compute as a share of the step",
            Some(EfficiencyKind::Measured) => " measured: against the baseline run",
            None => "",
        };
        ledger(html.el("small", below).raw("</h2></div>"), &run.report).done()
    });
    view! { <section class="panel" aria-label="Efficiency" data-testid="losses">{shown("", content)}</section> }
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

fn ledger(html: Html, report: &Report) -> Html {
    let Some(LossLedger { kind, efficiency, losses, residual }) = &report.loss_ledger else {
        return html.el("p class=quiet", &reason(report, "loss_ledger"));
    };
    let mut left = 1.0;
    let html = html
        .raw("<table class=losses><caption class=unseen>From the ideal step to the measured one, as shares of the step")
        .raw("</caption><tbody>");
    let html = total(html, "ideal", 1.0).each(losses, |html, &(loss, share)| {
        left -= share;
        row(html, loss.name(), means(loss), share, left, colour(loss))
    });
    let html = row(html, "residual", "what the losses leave unexplained", *residual, left - residual, None);
    let name = match kind {
        EfficiencyKind::Implied => "implied efficiency",
        EfficiencyKind::Measured => "measured efficiency",
    };
    total(html, name, *efficiency).raw("</tbody></table>")
}

/// Stands on the ground.
fn total(html: Html, name: &str, share: f64) -> Html {
    html.raw("<tr class=sum>")
        .el("th scope=row", name)
        .number(&units::percent(share))
        .raw("<td class=bar-cell>")
        .bar(0.0, share, None)
        .raw("</td></tr>")
}

/// Hangs below the row before; `left` remains.
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
    // Minus as long as the plus, and no minus before a nought.
    match share {
        0.0 => "0 %".into(),
        s if s < 0.0 => format!("−{}", units::percent(-s)),
        s => format!("+{}", units::percent(s)),
    }
}
