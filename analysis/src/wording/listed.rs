//! Lists in sentences.

/// The largest number of ranks or parameters that a sentence names one by one.
const MAX_NAMED: usize = 8;

/// Lists the first texts and says how many more there are; `None` if there are none.
pub(super) fn first_of(all: &[impl AsRef<str>]) -> Option<String> {
    let first: Vec<&str> = all.iter().take(MAX_NAMED).map(AsRef::as_ref).collect();
    let named = first.join(", ");
    match all.len() - first.len() {
        0 => Some(named).filter(|named| !named.is_empty()),
        more => Some(format!("{named} and {more} more")),
    }
}
