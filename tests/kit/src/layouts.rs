//! Layouts of the buckets of a simulated job.

use std::collections::BTreeMap;

use wire::batch::{Batch, Note};
use wire::event::Event;
use wire::ids::{Bucket, Rank};
use wire::layout::{Layout, LayoutBucket};

use crate::simulator::Simulation;

/// The first parameter of bucket 0. The name comes from the user's job, and may contain markup.
pub const FIRST: &str = "block0<img src=x onerror='window.harmed = true'>.weight";

/// Adds the layouts of a module: one bucket at first, and those of the simulated steps from step 1 on. The last parameter
/// has no gradient. The rank `other` has another parameter in a bucket.
#[must_use]
pub fn recorded(mut simulation: Simulation, other: u32) -> Simulation {
    let mut bytes: BTreeMap<Bucket, u64> = BTreeMap::new();
    for received in &simulation.batches {
        bytes.extend(received.batch.events.iter().filter_map(|event| match event {
            Event::Bucket(bucket) => Some((bucket.bucket, bucket.bytes)),
            _ => None,
        }));
    }
    let rebuilt: Vec<LayoutBucket> = bytes.iter().map(|(&bucket, &bytes)| described(bucket, bytes)).collect();
    let first = described(Bucket(0), bytes.values().sum());
    let is_first = |batch: &&mut Batch| batch.seq.0 == 0;
    for batch in simulation.batches.iter_mut().map(|received| &mut received.batch).filter(is_first) {
        batch.notes.extend(layouts(&first, &rebuilt, (batch.rank, batch.rank.0 == other)));
    }
    simulation
}

fn layouts(first: &LayoutBucket, rebuilt: &[LayoutBucket], (rank, is_other): (Rank, bool)) -> [Note; 2] {
    let class = "Net".to_owned();
    let mut layouts = [
        Layout { buckets: vec![first.clone()], class: class.clone(), since: Some(0), ..Layout::default() },
        Layout { buckets: rebuilt.to_vec(), class, since: Some(1), generation: 1, ..Layout::default() },
    ];
    layouts[1].unused = (layouts[1].count() as u32).checked_sub(1).map(|last| vec![last]);
    if is_other {
        layouts[1].buckets[0].parameters.reverse();
    }
    layouts.map(|layout| {
        let layout = layout.bounded().expect("the layout is small");
        Note::Layout(if rank == Rank(0) { layout } else { layout.digest_alone() })
    })
}

/// Describes a bucket of twelve parameters. The first one has half of the elements.
fn described(bucket: Bucket, bytes: u64) -> LayoutBucket {
    let name = |at: u32| match (bucket.0, at) {
        (0, 0) => FIRST.to_owned(),
        (bucket, 0) => format!("block{bucket}.weight"),
        (bucket, at) => format!("block{bucket}.{at}.bias"),
    };
    let all = bytes / 4;
    let elements = [all - all / 2].into_iter().chain([all / 22; 11]).collect();
    let parameters = (0..12).map(name).collect();
    LayoutBucket { bucket, bytes, parameters, elements, dtype: "float32".into() }
}
