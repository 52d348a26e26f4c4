//! The selection of a range with a pointer, as on the bar of step times and in the waterfall's miniature.

use viz::span::Span;

/// A drag that selects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brush {
    held: Option<Held>,
}

/// What the pointer holds, and the selection before the drag.
#[derive(Clone, Copy, Debug)]
struct Held {
    grip: Grip,
    selection: Option<Span>,
}

impl Brush {
    /// Returns the selection after a drag between two values, from the first to the second, within `bounds`. The pointer
    /// holds an end of `selection` that is within `reach` of where the drag began.
    pub fn drag(
        &mut self,
        selection: Option<Span>,
        (from, to): (f64, f64),
        reach: f64,
        bounds: Span,
    ) -> Span {
        let held = self.held.get_or_insert_with(|| Held { grip: grip(selection, from, reach), selection });
        dragged(held.selection, held.grip, from, to, bounds)
    }

    /// Ends the drag.
    pub fn release(&mut self) {
        self.held = None;
    }
}

/// The part of a selection that the pointer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grip {
    /// Nothing: dragging selects a new range.
    Nothing,
    /// The first end.
    Start,
    /// The last end.
    End,
    /// The whole selection: dragging moves it.
    Whole,
}

/// Returns what a pointer pressed at `at` holds. It holds an end within `reach`.
fn grip(selection: Option<Span>, at: f64, reach: f64) -> Grip {
    match selection {
        Some(span) if (at - span.start).abs() <= reach => Grip::Start,
        Some(span) if (at - span.end).abs() <= reach => Grip::End,
        Some(span) if span.contains(at) => Grip::Whole,
        _ => Grip::Nothing,
    }
}

/// Returns the selection after a drag from `from` to `to` within `bounds`. `selection` is the one before the drag.
fn dragged(selection: Option<Span>, grip: Grip, from: f64, to: f64, bounds: Span) -> Span {
    let to = to.clamp(bounds.start, bounds.end.max(bounds.start));
    let old = selection.unwrap_or(Span::new(from, from));
    match grip {
        Grip::Nothing => ordered(from, to),
        Grip::Start => ordered(to, old.end),
        Grip::End => ordered(old.start, to),
        Grip::Whole => {
            let distance = (to - from).min(bounds.end - old.end).max(bounds.start - old.start);
            Span::new(old.start + distance, old.end + distance)
        }
    }
}

fn ordered(a: f64, b: f64) -> Span {
    Span::new(a.min(b), a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Span = Span { start: 0.0, end: 100.0 };
    const SELECTION: Option<Span> = Some(Span { start: 20.0, end: 40.0 });

    #[test]
    fn the_pointer_holds_an_end_the_whole_or_nothing() {
        let held = |at| grip(SELECTION, at, 2.0);
        assert_eq!(held(21.5), Grip::Start);
        assert_eq!(held(39.0), Grip::End);
        assert_eq!(held(30.0), Grip::Whole);
        assert_eq!(held(50.0), Grip::Nothing);
        assert_eq!(grip(None, 30.0, 2.0), Grip::Nothing);
    }

    #[test]
    fn dragging_selects_resizes_and_moves() {
        let drag = |grip, from, to| dragged(SELECTION, grip, from, to, BOUNDS);
        assert_eq!(drag(Grip::Nothing, 70.0, 50.0), Span::new(50.0, 70.0));
        assert_eq!(drag(Grip::Start, 20.0, 5.0), Span::new(5.0, 40.0));
        assert_eq!(drag(Grip::Start, 20.0, 60.0), Span::new(40.0, 60.0), "an end may pass the other end");
        assert_eq!(drag(Grip::Whole, 30.0, 35.0), Span::new(25.0, 45.0));
        assert_eq!(drag(Grip::Whole, 30.0, 300.0), Span::new(80.0, 100.0), "it stops at the end of the run");
    }

    #[test]
    fn what_a_drag_holds_stays_the_same_until_it_ends() {
        let mut brush = Brush::default();
        assert_eq!(brush.drag(SELECTION, (40.5, 60.0), 2.0, BOUNDS), Span::new(20.0, 60.0));
        let selected = Some(Span::new(20.0, 60.0));
        assert_eq!(brush.drag(selected, (40.5, 10.0), 2.0, BOUNDS), Span::new(10.0, 20.0));
        brush.release();
        assert_eq!(brush.drag(selected, (40.5, 50.5), 2.0, BOUNDS), Span::new(30.0, 70.0));
    }

    proptest! {
        #[test]
        fn a_dragged_selection_stays_within_the_run(from in 0.0..100.0, to in -50.0..150.0, kind in 0usize..4) {
            let grip = [Grip::Nothing, Grip::Start, Grip::End, Grip::Whole][kind];
            let span = dragged(SELECTION, grip, from, to, BOUNDS);
            prop_assert!(span.start >= 0.0 && span.end <= 100.0 && span.start <= span.end);
        }
    }
}
