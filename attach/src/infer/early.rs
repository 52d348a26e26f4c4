//! Collectives that were read before the steps were known. They are placed once the steps are.

use std::collections::VecDeque;

use crate::infer::collective::Timed;
use crate::infer::steps::Placing;

/// The largest number of collectives that are kept. Each is at most one step with up to seven spans, so that the records of
/// all fit into the recorder's ring of 32,768.
const MAX_EARLY: usize = 4_096;

/// The newest collectives, oldest first, each with its place as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Early(VecDeque<(Timed, Placing)>);

impl Early {
    /// Adds a collective. Without space, the oldest one is forgotten.
    pub(crate) fn push(&mut self, timed: Timed, place: Placing) {
        if self.0.len() == MAX_EARLY {
            self.0.pop_front();
        }
        self.0.push_back((timed, place));
    }

    /// Sets the places of the newest collectives of a communicator. Those of older ones, which are no longer kept, are ignored.
    pub(crate) fn set_places(&mut self, communicator: u64, places: &[Placing]) {
        let kept = self.0.iter_mut().rev().filter(|(timed, _)| timed.collective.communicator == communicator);
        for ((_, known), place) in kept.zip(places.iter().rev()) {
            *known = *place;
        }
    }

    /// Removes all collectives and returns them.
    pub(crate) fn take(&mut self) -> VecDeque<(Timed, Placing)> {
        std::mem::take(&mut self.0)
    }
}
