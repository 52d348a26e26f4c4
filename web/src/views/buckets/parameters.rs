//! The parameters in the selected bucket, and how the buckets were laid out.

use analysis::wording::layouts;
use leptos::prelude::*;
use wire::layout::LayoutBucket;
use wire::views::{BucketParameters, ModuleLayouts};

use super::StepSelection;
use crate::api;
use crate::live::Live;
use crate::polled::polled;
use crate::table::{Column, Table};

#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    /// The place in the bucket, from 1.
    place: usize,
    /// `None` if it is unknown.
    size: Option<ParameterSize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ParameterSize {
    elements: u64,
    bytes: u64,
    /// Of the bucket.
    share: f64,
}

fn rows(bucket: &LayoutBucket) -> Vec<Row> {
    let all = bucket.elements().filter(|&all| all > 0);
    let size = |at: usize| {
        let elements = *bucket.elements.get(at)?;
        let share = elements as f64 / all? as f64;
        Some(ParameterSize { elements, bytes: (share * bucket.bytes as f64).round() as u64, share })
    };
    let row = |(at, name): (usize, &String)| Row { name: name.clone(), place: at + 1, size: size(at) };
    bucket.parameters.iter().enumerate().map(row).collect()
}

/// Describes a bucket: `12 parameters of float32, from layer4.1.conv2.weight to layer4.0.bn1.bias`.
fn summary(bucket: &LayoutBucket) -> String {
    let number = units::count(bucket.parameters.len() as u64);
    let dtype = if bucket.dtype.is_empty() { String::new() } else { format!(" of {}", bucket.dtype) };
    match &bucket.parameters[..] {
        [] => "No parameters.".into(),
        [only] => format!("1 parameter{dtype}: {only}."),
        [first, .., last] => format!("{number} parameters{dtype}, from {first} to {last}."),
    }
}

fn find<'a>(modules: &'a [ModuleLayouts], wanted: &BucketParameters) -> Option<&'a LayoutBucket> {
    let module = modules.iter().find(|module| module.module == wanted.module)?;
    let layout = module.layouts.iter().find(|layout| layout.generation == wanted.generation)?;
    layout.buckets.iter().find(|bucket| bucket.bucket.0 == wanted.bucket)
}

/// The modules and generations of the layouts that a report names, and the selected bucket.
type Named = (Vec<(u32, u32)>, Option<u32>);

/// The panel.
#[component]
pub fn Parameters(selection: StepSelection) -> impl IntoView {
    let live = expect_context::<Live>();
    let wanted = Memo::new(move |_| {
        let bucket = selection.bucket.get()?;
        live.run.with(|run| {
            let mut stats = run.as_ref()?.report.buckets.iter().filter(|stats| stats.bucket.0 == bucket);
            stats.find_map(|stats| stats.parameters.clone())
        })
    });
    // The layouts change with those that the report names. The parameters without a gradient are as of the selection.
    let named = Memo::new(move |_| {
        let generations = live.run.with(|run| {
            let stats = run.iter().flat_map(|run| run.report.buckets.iter());
            let named = stats.filter_map(|stats| stats.parameters.as_ref());
            named.map(|parameters| (parameters.module, parameters.generation)).collect()
        });
        Some((generations, selection.bucket.get()))
    });
    let modules = polled(None, named, |run, _: Named| async move { api::layouts(&run).await.ok() });
    let bucket = Memo::new(move |_| {
        let wanted = wanted.get()?;
        modules.with(|modules| find(modules.as_ref()?, &wanted).cloned())
    });
    view! { <Panel number=selection.bucket modules=modules bucket=bucket /> }
}

/// The content: `bucket` is what is known of the selected bucket, whose number is `number`.
#[component]
fn Panel(
    number: Memo<Option<u32>>,
    modules: Signal<Option<Vec<ModuleLayouts>>>,
    bucket: Memo<Option<LayoutBucket>>,
) -> impl IntoView {
    let title = Signal::derive(move || {
        number
            .get()
            .map_or_else(|| "Parameters of buckets".into(), |number| format!("Parameters of bucket {number}"))
    });
    let words = move || {
        let is_without = modules.with(|modules| modules.as_ref().is_some_and(Vec::is_empty));
        match (bucket.get(), number.get()) {
            (Some(bucket), _) => summary(&bucket),
            _ if is_without => {
                "This job's buckets have no recorded parameters: they are recorded of modules in PyTorch's \
                DistributedDataParallel and of jobs with Paceline's own reducer."
                    .into()
            }
            (None, Some(_)) => "This collective reduces no bucket of a module whose layout is known.".into(),
            (None, None) => "Select a bucket to see its parameters.".into(),
        }
    };
    let lines = move || {
        let description = |module: &ModuleLayouts| {
            let different = (!module.different.is_empty()).then(|| layouts::differ(&module.different));
            view! {
                <p class="quiet">{layouts::history(module)}</p>
                {layouts::unused(module).map(|unused| view! { <p>{unused}</p> })}
                {different.map(|different| view! { <p role="alert">{different}"."</p> })}
            }
        };
        modules.with(|modules| modules.iter().flatten().map(description).collect_view())
    };
    let listed = Memo::new(move |_| bucket.with(|bucket| bucket.as_ref().map(rows).unwrap_or_default()));
    let number = |name: &'static str, read: fn(ParameterSize) -> (f64, String)| {
        Column::number(name, move |row: &Row| row.size.map_or((f64::NAN, "—".into()), read))
    };
    let columns = vec![
        Column::text("Parameter", |row: &Row| row.name.clone()),
        Column::number("Place", |row: &Row| (row.place as f64, units::count(row.place as u64))),
        number("Elements", |size| (size.elements as f64, units::count(size.elements))),
        number("Bytes", |size| (size.bytes as f64, units::bytes(size.bytes))),
        number("Of the bucket", |size| (size.share, units::percent(size.share))),
    ];
    view! {
        <section class="panel" aria-label="Parameters" data-testid="parameters">
            <div class="panel-head"><h2>{title}</h2></div>
            <p class="quiet" data-testid="parameters-words">{words}</p>
            <div class:hidden=move || listed.with(Vec::is_empty)>
                <Table testid="parameters-table" caption=title columns=columns rows=listed key=|row: &Row| row.place />
            </div>
            <div data-testid="layouts">{lines}</div>
        </section>
    }
}
