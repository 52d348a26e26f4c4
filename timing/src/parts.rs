//! Parts of collectives that run in another step than the one that launched them.
//!
//! The record of a collective belongs to the step that launched it, so that all ranks match it there. A collective that is launched
//! ahead runs in another step too, which then has a record of that part. A part shows what the rank did. It is not a collective of
//! that step: it joins no other rank's record and waits for no other rank.

use wire::event::BucketRecord;
use wire::ids::Comm;

/// Returns the communicator of the parts of a rank. It has no other rank. The numbers from the highest one down are kept for these.
#[must_use]
pub fn comm_of_parts(rank: u32) -> Comm {
    Comm(u32::MAX - rank)
}

/// Returns true if a record of a rank is a part of a collective of another step.
#[must_use]
pub fn is_part(rank: u32, record: &BucketRecord) -> bool {
    record.comm == comm_of_parts(rank)
}
