//! Checks of how a page is laid out and drawn.

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

/// Waits until the page has drawn `frames` frames at its present width.
///
/// # Errors
/// Returns an error if the page stops drawing.
pub fn draw(browser: &Browser, frames: u32) -> anyhow::Result<()> {
    let script = format!(
        "if (window.framesFrom !== innerWidth) {{
             window.framesFrom = innerWidth;
             window.framesDrawn = 0;
             const count = () => {{ window.framesDrawn += 1; requestAnimationFrame(count); }};
             requestAnimationFrame(count);
         }}
         return window.framesDrawn > {frames}"
    );
    browser.wait("idle frames", &script).map(drop)
}
