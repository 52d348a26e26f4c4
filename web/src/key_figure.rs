//! A key figure with its term.

use leptos::prelude::*;

use crate::terms::Term;

/// A key figure: its name, its value or the reason why it is missing, and a line below.
#[component]
pub fn KeyFigure(
    testid: &'static str,
    name: &'static str,
    value: Result<String, String>,
    #[prop(into)] below: String,
) -> impl IntoView {
    let is_missing = value.is_err();
    let (value, below) = match value {
        Ok(value) => (value, below),
        Err(reason) => ("—".to_owned(), reason),
    };
    // The unit is written smaller.
    let (number, unit) = value.split_at(value.find(' ').unwrap_or(value.len()));
    view! {
        <div class="figure">
            <dt><Term name=name /></dt>
            <dd data-testid=testid class:missing=is_missing>
                {number.to_owned()}
                <small>{unit.to_owned()}</small>
            </dd>
            <dd class="below">{below}</dd>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;

    use super::*;
    use crate::mounted::mount_in_run;

    #[wasm_bindgen_test]
    fn a_missing_figure_is_a_dash_with_its_reason() {
        let (page, _) = mount_in_run(|| {
            view! {
                <dl>
                    <KeyFigure testid="known" name="overlap" value=Ok("50.0 %".into()) below="of 3 steps" />
                    <KeyFigure testid="missing" name="overlap" value=Err("no step".into()) below="of 3 steps" />
                </dl>
            }
        });
        assert_eq!(page.text("[data-testid=known]"), "50.0 %");
        assert_eq!(page.text("[data-testid=missing]"), "—");
        assert_eq!(page.texts("dd.below"), ["of 3 steps", "no step"]);
    }
}
