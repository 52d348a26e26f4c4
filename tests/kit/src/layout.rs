//! Checks of the layout of a page.

use crate::browser::Browser;

/// Returns the elements that are wider than the window, except those inside scrolling elements; `None` if the page fits.
///
/// # Errors
/// Returns an error if the browser does not answer.
pub fn overflow(browser: &Browser) -> anyhow::Result<Option<String>> {
    let script = "const root = document.documentElement;
        const inside = e => e.closest('.rows, .scroll-x, .tip, .unseen, .tabs');
        return [innerWidth, root.scrollWidth, [...document.querySelectorAll('main *, header *')]
            .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5 && !inside(e))
            .slice(0, 5).map(e => e.outerHTML.slice(0, 120))]";
    let found = browser.run(script)?;
    Ok((found[1].as_f64() > found[0].as_f64()).then(|| format!("{found:#}")))
}
