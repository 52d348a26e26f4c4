//! The lines of the job's own code, by how much more of its time a rank spends in them than another.

use analysis::stacks::{Gain, gains};
use leptos::prelude::*;

use super::Compared;
use crate::table::{Column, Table};

/// The table of lines.
#[component]
pub fn Lines(compared: Memo<Option<Compared>>) -> impl IntoView {
    let rows = Signal::derive(move || {
        compared.with(|compared| {
            let Some(Compared { own, other, role, .. }) = compared else { return Vec::new() };
            gains(own, other.as_ref().map(|other| &other.profile), *role)
        })
    });
    let share = |share: f64| (share, units::percent(share));
    let columns = vec![
        Column::text("Function", |row: &Gain| row.frame.function.clone()),
        Column::text("Line", |row: &Gain| match row.frame.file.as_str() {
            "" => "—".into(),
            file => format!("{file}:{}", row.frame.line),
        }),
        Column::number("This rank", move |row: &Gain| share(row.share))
            .meaning("share of its samples in which the line was running or calling"),
        Column::number("Other rank", move |row: &Gain| row.other_share.map_or((f64::NAN, "—".into()), share)),
        Column::number("More", move |row: &Gain| {
            row.other_share.map_or((f64::NAN, "—".into()), |other| share(row.share - other))
        }),
    ];
    view! {
        <Table
            testid="code-lines"
            caption="Lines of the job's own code"
            columns=columns
            rows=rows
            key=|row: &Gain| row.frame.clone()
        />
    }
}
