//! The training plan: a form that estimates training time from the run's model.

use analysis::plan::{Training, usual_efficiency};
use leptos::prelude::*;

use super::Answered;
use crate::route::Address;

/// A field of the form: key in the address, name, unit, and initial value.
struct Field {
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    first: &'static str,
}

const FIELDS: [Field; 5] = [
    Field { key: "params", name: "Parameters", unit: "", first: "7e9" },
    Field { key: "tokens", name: "Tokens", unit: "", first: "1e12" },
    Field { key: "peak", name: "Peak of one device", unit: "FLOP/s", first: "989e12" },
    Field { key: "mfu", name: "MFU on one device", unit: "%", first: "40" },
    Field { key: "world", name: "Ranks", unit: "", first: "1024" },
];

/// The form and its answer.
#[component]
pub fn Plan(answered: Answered) -> impl IntoView {
    let address = expect_context::<Address>();
    let value = move |at: usize| address.param(FIELDS[at].key).unwrap_or_else(|| FIELDS[at].first.into());
    let number = move |at: usize| {
        value(at).replace(['_', ' '], "").parse::<f64>().ok().filter(|v| *v > 0.0 && v.is_finite())
    };
    let fields = (0..FIELDS.len())
        .map(|at| {
            let Field { key, name, unit, .. } = FIELDS[at];
            let change =
                move |event: leptos::ev::Event| address.set([(key, Some(event_target_value(&event)))]);
            let bad = move || number(at).is_none().to_string();
            view! {
                <label class="field">
                    <span>{name}</span>
                    <input
                        inputmode="decimal"
                        data-testid=key
                        prop:value=move || value(at)
                        aria-invalid=bad
                        on:change=change
                    />
                    <span>{unit}</span>
                </label>
            }
        })
        .collect_view();
    // The model covers some world sizes. The next larger one gives the more careful estimate.
    let efficiency = move |ranks: u32| {
        let known = answered.get().and_then(Result::ok);
        let known = known.and_then(|answer| answer.predictions.iter().find(|p| p.ranks >= ranks).copied());
        match known {
            Some(known) => (known.efficiency, format!("predicted for {}", units::ranks(known.ranks))),
            None => (
                usual_efficiency(ranks),
                "a typical one, 1 / (1 + 0.04 √ranks), because this run has no model for it".into(),
            ),
        }
    };
    let planned = Signal::derive(move || {
        let [parameters, tokens, peak, mfu, ranks] = [0, 1, 2, 3, 4].map(number);
        let training =
            Training { parameters: parameters?, tokens: tokens?, peak: peak?, mfu: (mfu? / 100.0).min(1.0) };
        let ranks = ranks?.min(f64::from(u32::MAX)).max(1.0) as u32;
        let (efficiency, from) = efficiency(ranks);
        Some((training.on(ranks, efficiency), from))
    });
    let answer = move || {
        let Some((plan, from)) = planned.get() else {
            return view! {
                <p class="error" role="status">"Every field needs a number above 0, such as 7e9."</p>
            }
            .into_any();
        };
        let figures = [
            ("Ideal", days(plan.ideal_days)),
            ("Realistic", days(plan.days)),
            ("Scaling efficiency", units::percent(plan.efficiency)),
            ("Speed-up over one rank", format!("{} ×", units::significant(plan.speed_up))),
        ];
        let figures =
            figures.map(|(name, value)| view! { <div><dt>{name}</dt><dd>{value}</dd></div> }).collect_view();
        view! {
            <dl class="costs" data-testid="plan">{figures}</dl>
            <p class="quiet below">{format!("6 × parameters × tokens FLOPs. The efficiency is {from}.")}</p>
        }
        .into_any()
    };
    view! {
        <section class="panel" aria-label="Training plan">
            <div class="panel-head"><h2>"Training time"</h2></div>
            <div class="form">{fields}</div>
            {answer}
        </section>
    }
}

fn days(days: f64) -> String {
    if days >= 1.0 { format!("{} days", units::significant(days)) } else { units::nanos(days * 86_400e9) }
}
