//! Terms that open their definition, by click, touch or key.

use leptos::prelude::*;
use model::terms::{self, Term as Definition};

use crate::widgets::Dialog;

#[derive(Clone, Copy)]
pub struct OpenTerm(RwSignal<Option<&'static Definition>>);

impl OpenTerm {
    /// Creates the state, without an open definition. Call once.
    pub fn new() -> Self {
        Self(RwSignal::new(None))
    }
}

/// A term. A click opens its definition. A name without a definition is plain text.
#[component]
pub fn Term(#[prop(into)] name: String) -> impl IntoView {
    let open = expect_context::<OpenTerm>();
    match terms::find(&name) {
        None => name.into_any(),
        Some(term) => view! {
            <button
                class="term"
                title=term.means
                aria-haspopup="dialog"
                on:click=move |event| {
                    event.stop_propagation();
                    open.0.set(Some(term));
                }
            >
                {name}
            </button>
        }
        .into_any(),
    }
}

/// The open definition. Once per page.
#[component]
pub fn DefinitionDialog() -> impl IntoView {
    let open = expect_context::<OpenTerm>().0;
    let is_open = RwSignal::new(false);
    Effect::new(move |_| {
        if open.with(Option::is_some) {
            is_open.set(true);
        }
    });
    // The dialog can also be closed with Escape. A signal that is set notifies even if nothing changes.
    Effect::new(move |_| {
        if !is_open.get() && open.with_untracked(Option::is_some) {
            open.set(None);
        }
    });
    let name = move || open.get().map(|term| units::capitalized(term.name));
    let means = move || open.get().map(|term| term.means);
    view! {
        <Dialog testid="definition" name="Definition" open=is_open>
            <div class="definition">
                <h3>{name}</h3>
                <p>{means}</p>
                <p class="quiet">"docs/metrics.md has the formula."</p>
            </div>
        </Dialog>
    }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;

    use super::*;
    use crate::mounted::mount_in_run;

    #[wasm_bindgen_test]
    async fn a_term_opens_its_definition_and_a_click_closes_it() {
        let (page, _) = mount_in_run(|| view! { <Term name="overlap" /><DefinitionDialog /> });
        page.click(".term").await;
        assert_eq!(page.text(".definition h3"), "Overlap");
        assert!(page.attribute("dialog", "open").is_some());
        page.click("[data-testid=definition-close]").await;
        assert!(page.attribute("dialog", "open").is_none());
        page.click(".term").await;
        assert!(page.attribute("dialog", "open").is_some(), "the same term opens again");
    }

    #[wasm_bindgen_test]
    fn a_name_without_a_definition_is_text() {
        let (page, _) = mount_in_run(|| view! { <p><Term name="node-17" /></p> });
        assert_eq!((page.text("p"), page.find("button")), ("node-17".into(), None));
    }
}
