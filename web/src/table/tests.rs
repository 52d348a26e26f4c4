//! What a person does with a table.

use std::sync::atomic::{AtomicU32, Ordering};

use wasm_bindgen_test::wasm_bindgen_test;

use super::*;
use crate::mounted::{Mounted, mount};

/// A row: its name and its figure.
type Line = (u32, f64);

fn columns() -> Vec<Column<Line>> {
    vec![
        Column::number("Rank", |line: &Line| (f64::from(line.0), line.0.to_string())),
        Column::number("Time", |line: &Line| (line.1, units::nanos(line.1))),
    ]
}

fn table(rows: RwSignal<Vec<Line>>) -> Mounted {
    mount(
        move || view! { <Table testid="ranks" caption="Ranks" columns=columns() rows=rows key=|line: &Line| line.0 /> },
    )
}

/// Returns the first cells of the rows in the document.
fn names(page: &Mounted) -> Vec<String> {
    page.texts("tbody th")
}

fn many() -> RwSignal<Vec<Line>> {
    RwSignal::new((0..1_000).map(|rank| (rank, f64::from(rank % 7) * 1e6)).collect())
}

#[wasm_bindgen_test]
async fn a_heading_sorts_down_then_up_then_back() {
    let page = table(RwSignal::new(vec![(0, 2e6), (1, 9e6), (2, 5e6)]));
    assert_eq!(names(&page), ["0", "1", "2"]);
    for (order, spoken) in
        [(["1", "2", "0"], Some("descending")), (["0", "2", "1"], Some("ascending")), (["0", "1", "2"], None)]
    {
        page.click("th:nth-child(2) .sort").await;
        assert_eq!(names(&page), order);
        assert_eq!(page.attribute("th:nth-child(2)", "aria-sort").as_deref(), spoken);
    }
}

#[wasm_bindgen_test]
async fn a_long_table_has_a_filter_and_says_how_many_rows_it_finds() {
    let page = table(many());
    page.enter("[data-testid=ranks-filter]", "rank 613").await;
    assert_eq!(names(&page), ["613"]);
    assert_eq!(page.text(".filter small"), "1 of 1,000 rows");
    page.enter("[data-testid=ranks-filter]", "no such host").await;
    assert_eq!(names(&page), [""; 0]);
    page.enter("[data-testid=ranks-filter]", "").await;
    assert_eq!(page.text(".filter small"), "");
}

#[wasm_bindgen_test]
async fn a_short_table_has_no_filter() {
    let page = table(RwSignal::new(vec![(0, 2e6), (1, 9e6)]));
    assert!(page.find("[data-testid=ranks-filter]").is_none());
}

#[wasm_bindgen_test]
async fn only_rows_near_the_visible_ones_are_in_the_document() {
    let page = table(many());
    assert!(names(&page).len() < 40, "{} rows", names(&page).len());
    page.scroll(".rows", 500.0 * ROW).await;
    let shown = names(&page);
    assert!(shown.len() < 40 && shown.contains(&"500".to_owned()), "{shown:?}");
}

#[wasm_bindgen_test]
async fn an_element_stays_while_its_figures_change_and_rows_change_places() {
    let rows = RwSignal::new(vec![(0, 2e6), (1, 9e6)]);
    let page = table(rows);
    page.click("th:nth-child(2) .sort").await;
    let before = page.find("tbody tr:nth-child(2)");
    assert_eq!(names(&page), ["1", "0"]);
    rows.set(vec![(0, 30e6), (1, 9e6)]);
    page.settle().await;
    assert_eq!(names(&page), ["0", "1"]);
    assert_eq!(page.texts("tbody td:nth-child(2)"), ["30.0 ms", "9.00 ms"]);
    assert_eq!(page.find("tbody tr:nth-child(3)"), before, "rank 1 is the same element in another place");
}

#[wasm_bindgen_test]
async fn a_row_is_chosen_by_its_button_and_by_a_click_on_any_cell() {
    static CHOSEN: AtomicU32 = AtomicU32::new(u32::MAX);
    let chosen = RwSignal::new(None::<u32>);
    let choose = move |line: Line| {
        chosen.set(Some(line.0));
        CHOSEN.store(line.0, Ordering::Relaxed);
    };
    let page = mount(move || {
        let choice = Choice::new(move |line: &Line| chosen.get() == Some(line.0), choose);
        let rows = RwSignal::new(vec![(4, 2e6), (5, 9e6)]);
        view! { <Table testid="ranks" caption="Ranks" columns=columns() rows=rows key=|line: &Line| line.0 choice=choice /> }
    });
    page.click("tbody tr:nth-child(2) button").await;
    assert_eq!((CHOSEN.load(Ordering::Relaxed), page.texts("tr.chosen th")), (4, vec!["4".to_owned()]));
    page.click("tbody tr:nth-child(3) td").await;
    assert_eq!((CHOSEN.load(Ordering::Relaxed), page.texts("tr.chosen th")), (5, vec!["5".to_owned()]));
}
