//! The training plan: how long a training takes, by the number of ranks, with the efficiency that a run's model
//! predicts.

mod picture;

use analysis::plan::efficiency::Efficiency;
use leptos::prelude::*;
use model::plan::{FIELDS, Field, Line, Plan, days, read};
use model::route::Tab;
use wire::views::scaling::ScalingPrediction;

use self::picture::picture;
use crate::api;
use crate::route::Address;
use crate::run_choice::RunChoice;
use crate::table::{Choice, Column, Table};
use crate::xy::Xy;

/// The predictions of the chosen run, or the reason why there are none. `None` while no run is chosen or it loads.
type Predicted = Option<Result<Vec<ScalingPrediction>, String>>;

#[component]
pub fn Planner() -> impl IntoView {
    let address = expect_context::<Address>();
    let run = Memo::new(move |_| address.param("run"));
    let fetched = LocalResource::new(move || {
        let run = run.get();
        async move {
            let run = run?;
            let answer = api::scaling(&run, None).await.map(|answer| answer.predictions);
            Some((run, answer))
        }
    });
    // The answer for another run stays until the next one arrives.
    let predicted = move || -> Predicted {
        let (answered_run, answer) = fetched.get().flatten()?;
        (Some(answered_run) == run.get()).then_some(answer)
    };
    let plan = Memo::new(move |_| {
        let predictions = predicted().and_then(Result::ok).unwrap_or_default();
        Plan::new(&FIELDS.map(|field| value(address, field)), &predictions)
    });
    let known = Signal::derive(move || plan.get().ok());
    let missing = move || predicted().and_then(Result::err).map(|error| units::capitalized(&error));
    let picture = Signal::derive(move || plan.get().map(|plan| picture(&plan)));
    let back =
        move || run.get().map(|run| view! { <a href=Tab::Scaling.path(&run)>"Scaling of this run"</a> });
    view! {
        <section class="page">
            <div class="run-head"><h1>"Training plan"</h1><span class="grow"></span>{back}</div>
            <section class="panel" aria-label="Form">
                <div class="form">
                    {FIELDS.map(|field| view! { <Input field=field /> }).collect_view()}
                    <RunChoice key="run" name="Efficiency from" nothing="no run: a typical one" />
                </div>
                <p class="error" role="status" data-testid="plan-error">{move || plan.get().err()}</p>
                <p class="quiet">{missing}</p>
            </section>
            <Show when=move || known.with(Option::is_some)>
                <p class="lead" data-testid="plan">{move || known.get().map(|plan| plan.sentence())}</p>
                <p class="quiet" data-testid="plan-source">
                    {move || known.get().map(|plan| plan.source(run.get().as_deref()))}
                    " The work is 6 × parameters × tokens FLOPs, as of a dense transformer."
                </p>
                <section class="panel" aria-label="Days by number of ranks">
                    <div class="panel-head"><h2>"Days by number of ranks"</h2></div>
                    <ul class="legend">
                        <li><i class="key line-accent" aria-hidden="true"></i>"with this efficiency, and its range"</li>
                        <li><i class="key dashed" aria-hidden="true"></i>"with perfect scaling"</li>
                    </ul>
                    <Xy
                        label="Training time against the number of ranks; the table below has its numbers"
                        testid="plan-days"
                        height=260.0
                        axes=("ranks", "training time")
                        picture=picture
                    />
                </section>
                <section class="panel" aria-label="Plans">
                    <div class="panel-head"><h2>"Plans"<small>" click one to choose its number of ranks"</small></h2></div>
                    <Plans plan=known />
                </section>
            </Show>
        </section>
    }
}

fn value(address: Address, field: Field) -> String {
    address.param(field.key).unwrap_or_else(|| field.first.into())
}

/// A field of the form. The address holds its value.
#[component]
fn Input(field: Field) -> impl IntoView {
    let address = expect_context::<Address>();
    let Field { key, name, unit, means, .. } = field;
    let change = move |event: leptos::ev::Event| address.set([(key, Some(event_target_value(&event)))]);
    view! {
        <label class="field" title=means>
            <span>{name}</span>
            <input
                inputmode="decimal"
                data-testid=key
                prop:value=move || value(address, field)
                aria-invalid=move || read(&value(address, field)).is_none().to_string()
                on:change=change
            />
            <span>{unit}</span>
        </label>
    }
}

/// The plans for all world sizes. A click on one chooses its number of ranks.
#[component]
fn Plans(plan: Signal<Option<Plan>>) -> impl IntoView {
    let address = expect_context::<Address>();
    let rows = Signal::derive(move || plan.get().map(|plan| plan.lines).unwrap_or_default());
    let time = |value: f64| (value, days(value));
    let columns = vec![
        Column::number("Ranks", |line: &Line| {
            (f64::from(line.planned.ranks), units::count(line.planned.ranks.into()))
        }),
        Column::number("Training time", move |line: &Line| time(line.planned.days)),
        Column::text("Range", |line: &Line| {
            line.days.map_or_else(|| "—".into(), |(low, high)| format!("{} to {}", days(low), days(high)))
        })
        .right()
        .meaning("From the error band of the prediction"),
        Column::number("Perfect scaling", move |line: &Line| time(line.planned.ideal_days))
            .meaning("The time if N ranks were N times as fast as one"),
        Column::number("Efficiency", |line: &Line| {
            let value = line.efficiency.value();
            (value, units::percent(value))
        }),
        Column::text("Source", |line: &Line| match line.efficiency {
            Efficiency::Predicted(of) => format!("predicted for {}", units::ranks(of.ranks)),
            Efficiency::Usual(_) => "assumed".into(),
        })
        .meaning("Where the efficiency comes from"),
        Column::number("Speed-up", |line: &Line| {
            (line.planned.speed_up, format!("{} ×", units::significant(line.planned.speed_up)))
        })
        .meaning("The speed relative to one rank"),
    ];
    let choice = Choice::new(
        move |line: &Line| plan.get().is_some_and(|plan| plan.chosen.planned.ranks == line.planned.ranks),
        move |line: Line| address.set([("world", Some(line.planned.ranks.to_string()))]),
    );
    let key = |line: &Line| line.planned.ranks;
    view! { <Table testid="plans" caption="Plans by number of ranks" columns=columns rows=rows key=key choice=choice /> }
}
