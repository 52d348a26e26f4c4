//! Layouts of gradient buckets that hooks reported, until the observer thread sends them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use wire::layout::Layout;

/// The largest number of layouts that wait. A layout waits until the rank is known.
const MAX_WAITING: usize = 64;

static WAITING: Mutex<VecDeque<Layout>> = Mutex::new(VecDeque::new());

/// Remembers a layout, written as JSON. Text that is not a layout is ignored, and so are layouts that are too large and those
/// beyond [`MAX_WAITING`].
pub(crate) fn learn(json: &str) {
    let Some(layout) = serde_json::from_str::<Layout>(json).ok().and_then(Layout::bounded) else { return };
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.len() < MAX_WAITING {
        waiting.push_back(layout);
    }
}

/// Takes the oldest layout. One at a time is sent per turn of the observer thread, because a batch has room for few large
/// ones.
pub(crate) fn take() -> Option<Layout> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_waits_until_it_is_taken_and_other_text_is_ignored() {
        let json = r#"{"comm":0,"generation":1,"module":2,"class":"Net","since":1,"unused":[0],"buckets":
            [{"bucket":0,"bytes":8,"dtype":"float32","parameters":["a.weight"],"elements":[2]}]}"#;
        ["", "{}", json].into_iter().for_each(learn);
        let layout = take().unwrap();
        assert_eq!((layout.generation, layout.module, &*layout.class, layout.since), (1, 2, "Net", Some(1)));
        assert_eq!(layout.unused_names().collect::<Vec<_>>(), ["a.weight"]);
        assert_eq!(layout.digest, layout.digest_of_buckets());
        assert_eq!(take(), None);
    }
}
