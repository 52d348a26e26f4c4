//! The flame graph: the frames of a rank's threads, as wide as their share of the samples, colored by the difference from
//! another rank.

use analysis::stacks::location;
use leptos::prelude::*;
use model::flame::{Cell, cells};
use wire::stacks::Frame;

use super::Compared;

/// The height of a row in CSS pixels.
const ROW: usize = 18;
/// The narrowest frame with a label, as a share of the picture.
const LABELED: f64 = 0.02;

/// The picture. A click on a frame gives it the whole width.
#[component]
pub fn Flame(compared: Memo<Option<Compared>>) -> impl IntoView {
    let zoom = RwSignal::new(Vec::<Frame>::new());
    let drawn = Memo::new(move |_| {
        compared.with(|compared| {
            let Some(Compared { own, other, role, .. }) = compared else { return Vec::new() };
            zoom.with(|zoom| cells(own, other.as_ref().map(|other| &other.profile), *role, zoom))
        })
    });
    let height = move || drawn.with(|cells| (cells.iter().map(|cell| cell.row).max().unwrap_or(0) + 1) * ROW);
    let names = Memo::new(move |_| {
        compared.with(|compared| {
            compared.as_ref().map(|compared| (compared.rank, compared.other.as_ref().map(|other| other.rank)))
        })
    });
    let caption = move || match names.get() {
        Some((rank, Some(other))) => format!(
            "The width is the share of rank {rank}'s samples; the color is the difference from rank {other}."
        ),
        Some((rank, None)) => format!("The width is the share of rank {rank}'s samples."),
        None => String::new(),
    };
    let frames = move || {
        drawn.get().into_iter().map(|cell| view! { <Shown cell=cell zoom=zoom names=names /> }).collect_view()
    };
    view! {
        <div class="flame-head">
            <p class="quiet">{caption}</p>
            <ul class="flame-key" class:hidden=move || names.get().is_none_or(|(_, other)| other.is_none())>
                <li><svg class="flame" aria-hidden="true"><rect class="more-3" width="100%" height="100%"></rect></svg>"more"</li>
                <li><svg class="flame" aria-hidden="true"><rect class="same" width="100%" height="100%"></rect></svg>"as much"</li>
                <li><svg class="flame" aria-hidden="true"><rect class="less-3" width="100%" height="100%"></rect></svg>"less"</li>
            </ul>
            <span class="grow"></span>
            <button class="quiet" class:hidden=move || zoom.with(Vec::is_empty) on:click=move |_| zoom.set(Vec::new())>
                "Whole stack"
            </button>
        </div>
        <svg class="flame" role="group" aria-label="Flame graph" data-testid="flame" width="100%" height=height>
            {frames}
        </svg>
    }
}

#[component]
fn Shown(cell: Cell, zoom: RwSignal<Vec<Frame>>, names: Memo<Option<(u32, Option<u32>)>>) -> impl IntoView {
    let percent = |share: f64| format!("{}%", share * 100.0);
    let title = {
        let written = |rank: u32, share: f64| format!("rank {rank}: {}", units::percent(share));
        let shares = names.get_untracked().map(|(rank, other)| {
            let other = other
                .zip(cell.other)
                .map_or_else(String::new, |(rank, share)| format!(", {}", written(rank, share)));
            format!("{}{other}", written(rank, cell.own))
        });
        let Frame { function, file, line } = &cell.frame;
        let at = if file.is_empty() { String::new() } else { format!(" · {file}:{line}") };
        format!("{function}{at}\n{}", shares.unwrap_or_default())
    };
    let described = title.clone();
    let label = (cell.width >= LABELED).then(|| location(&cell.frame));
    let path = cell.path.clone();
    let is_zoomed = move |path: &[Frame]| zoom.with_untracked(|zoom| zoom == path);
    let go = move || {
        let mut path = path.clone();
        if is_zoomed(&path) {
            path.pop();
        }
        zoom.set(path);
    };
    let (click, press) = (go.clone(), go);
    let on_key = move |event: leptos::ev::KeyboardEvent| {
        if matches!(event.key().as_str(), "Enter" | " ") {
            event.prevent_default();
            event.stop_propagation();
            press();
        }
    };
    view! {
        <svg
            x=percent(cell.from)
            y=cell.row * ROW
            width=percent(cell.width)
            height=ROW
            role="button"
            tabindex="0"
            aria-label=described
            on:click=move |_| click()
            on:keydown=on_key
        >
            <title>{title}</title>
            <rect class=cell.class() width="100%" height=ROW - 1></rect>
            <text x="4" y="13">{label}</text>
        </svg>
    }
}
