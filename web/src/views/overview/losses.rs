//! The loss ledger as a waterfall from the ideal step to the measured one.

use leptos::prelude::*;
use viz::palette::{self, Rgba};
use wire::live::Part;
use wire::views::Figure;
use wire::views::what_if::{EfficiencyKind, Loss, LossLedger};

use crate::live::Live;
use crate::widgets::{Bar, Swatch};

/// The panel.
#[component]
pub fn Losses() -> impl IntoView {
    let live = expect_context::<Live>();
    let ledger = move || live.run.get().map(|run| run.report.loss_ledger.clone());
    let kind = move || match ledger()?.known()?.kind {
        EfficiencyKind::Implied => Some(" implied: compute as a share of the step"),
        EfficiencyKind::Measured => Some(" measured: against the baseline run"),
    };
    let content = move || match ledger()? {
        Figure::Known(ledger) => Some(view! { <Waterfall ledger=ledger /> }.into_any()),
        Figure::Missing { missing } => Some(view! { <p class="quiet">{missing.to_string()}</p> }.into_any()),
    };
    view! {
        <section class="panel" aria-label="Efficiency" data-testid="losses">
            <div class="panel-head"><h2>"Where efficiency goes"<small>{kind}</small></h2></div>
            {content}
        </section>
    }
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

#[component]
fn Waterfall(ledger: LossLedger) -> impl IntoView {
    let LossLedger { kind, efficiency, losses, residual } = ledger;
    let mut left = 1.0;
    let rows = losses
        .into_iter()
        .map(|(loss, share)| {
            left -= share;
            view! { <Row name=loss.name() means=means(loss) share=share left=left colour=colour(loss) /> }
        })
        .collect_view();
    let name = match kind {
        EfficiencyKind::Implied => "implied efficiency",
        EfficiencyKind::Measured => "measured efficiency",
    };
    view! {
        <table class="losses">
            <caption class="unseen">"From the ideal step to the measured one, as shares of the step"</caption>
            <tbody>
                <Total name="ideal" share=1.0 />
                {rows}
                <Row
                    name="residual"
                    means="not explained by the losses"
                    share=residual
                    left=left - residual
                    colour=None
                />
                <Total name=name share=efficiency />
            </tbody>
        </table>
    }
}

/// A row whose bar begins at 0.
#[component]
fn Total(name: &'static str, share: f64) -> impl IntoView {
    view! {
        <tr class="sum">
            <th scope="row">{name}</th>
            <td class="number">{units::percent(share)}</td>
            <td class="bar-cell"><Bar from=0.0 to=share colour=None /></td>
        </tr>
    }
}

/// A row whose bar begins where the previous one ends; `left` remains.
#[component]
fn Row(
    name: &'static str,
    means: &'static str,
    share: f64,
    left: f64,
    colour: Option<Rgba>,
) -> impl IntoView {
    view! {
        <tr title=means>
            <th scope="row">{colour.map(|colour| view! { <Swatch colour=colour /> })} {name}</th>
            <td class="number">{signed_percent(-share)}</td>
            <td class="bar-cell">
                <Bar from=left.min(left + share) to=left.max(left + share) colour=colour />
            </td>
        </tr>
    }
}

fn signed_percent(share: f64) -> String {
    // The minus is as long as the plus, and 0 has none.
    match share {
        0.0 => "0 %".into(),
        s if s < 0.0 => format!("−{}", units::percent(-s)),
        s => format!("+{}", units::percent(s)),
    }
}
