//! Layouts of buckets in words.

use wire::ids::Rank;
use wire::layout::Layout;
use wire::views::ModuleLayouts;

use super::listed::first_of;

/// Says how the buckets of a module changed: `Net: 1 bucket at first; 4 buckets since step 1 (rebuilt).`
#[must_use]
pub fn history(module: &ModuleLayouts) -> String {
    let sizes = |layout: &Layout| {
        let number = layout.buckets.len() as u64;
        let noun = if number == 1 { "bucket" } else { "buckets" };
        let buckets = format!("{} {noun}", units::count(number));
        match (layout.generation, layout.since) {
            (0, _) => format!("{buckets} at first"),
            (_, Some(since)) => format!("{buckets} since step {} (rebuilt)", units::count(since)),
            (_, None) => format!("{buckets} after the rebuild, whose step is unknown"),
        }
    };
    let all: Vec<String> = module.layouts.iter().map(sizes).collect();
    format!("{}: {}.", name(module), all.join("; "))
}

/// Names the parameters without a gradient: `Without a gradient on rank 0 in the last pass that was looked at: a.weight.`
/// Returns `None` if there are none, or if no pass was looked at.
#[must_use]
pub fn unused(module: &ModuleLayouts) -> Option<String> {
    let newest = module.layouts.last()?;
    let names: Vec<&str> = newest.unused_names().collect();
    let named = first_of(&names)?;
    Some(format!(
        "{}: without a gradient on rank 0 in the last pass that was looked at: {named}.",
        name(module)
    ))
}

/// Says which ranks have other parameters in a bucket than rank 0. `ranks` must not be empty.
#[must_use]
pub fn differ(ranks: &[Rank]) -> String {
    let numbers: Vec<String> = ranks.iter().map(Rank::to_string).collect();
    let (noun, verb) = if ranks.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
    format!(
        "{noun} {} {verb} other parameters in a bucket than rank 0, whose names are shown: the job sums gradients of \
         different parameters",
        first_of(&numbers).unwrap_or_default()
    )
}

fn name(module: &ModuleLayouts) -> &str {
    if module.class.is_empty() { "model" } else { &module.class }
}

#[cfg(test)]
mod tests {
    use wire::layout::LayoutBucket;

    use super::*;

    fn layout(generation: u32, first_step: Option<u64>, buckets: &[&[&str]]) -> Layout {
        let bucket = |names: &&[&str]| LayoutBucket {
            parameters: names.iter().map(|&name| name.to_owned()).collect(),
            ..LayoutBucket::default()
        };
        Layout {
            generation,
            since: first_step,
            buckets: buckets.iter().map(bucket).collect(),
            ..Layout::default()
        }
    }

    #[test]
    fn the_history_says_when_the_buckets_were_rebuilt_or_that_it_is_unknown() {
        let first = layout(0, Some(0), &[&["a", "b"]]);
        let rebuilt = |first_step| layout(1, first_step, &[&["b"], &["a"]]);
        let module_layouts =
            |layouts| ModuleLayouts { module: 0, class: "Net".into(), layouts, different: Vec::new() };
        let words = history(&module_layouts(vec![first.clone(), rebuilt(Some(1))]));
        assert_eq!(words, "Net: 1 bucket at first; 2 buckets since step 1 (rebuilt).");
        let words = history(&module_layouts(vec![rebuilt(None)]));
        assert_eq!(words, "Net: 2 buckets after the rebuild, whose step is unknown.");
        assert_eq!(unused(&module_layouts(vec![first.clone()])), None);
        let words = unused(&module_layouts(vec![Layout { unused: Some(vec![1]), ..first }]));
        let expected = "Net: without a gradient on rank 0 in the last pass that was looked at: b.";
        assert_eq!(words.as_deref(), Some(expected));
    }

    #[test]
    fn many_ranks_are_counted() {
        assert!(differ(&[Rank(3)]).starts_with("rank 3 has other parameters"));
        let many: Vec<Rank> = (1..20).map(Rank).collect();
        assert!(differ(&many).starts_with("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more have other"));
    }
}
