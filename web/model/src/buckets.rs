//! What the Buckets view decides: which ranks a waterfall shows, who waits for whom, what a measured range holds, and
//! which steps are worth a look.

pub mod differ;
pub mod histogram;
pub mod measured;
pub mod rows;
pub mod steps;
pub mod waits;

#[cfg(test)]
mod fixture {
    use wire::live::{SliceKind, Waterfall};

    /// A waterfall of one bucket, which every rank starts at a time of its own and which ends for all at 100. A rank
    /// computes backward from 0 until it starts, and then waits for the last one.
    pub fn started_at(starts: &[f64]) -> Waterfall {
        let ranks = starts.len() as u32;
        let last = starts.iter().copied().fold(0.0, f64::max);
        let zeros = vec![0.0; starts.len()];
        let waterfall = Waterfall {
            span_nanos: 100.0,
            rank: (0..ranks).collect(),
            clock_bound: zeros.clone(),
            rank_begin: zeros.clone(),
            rank_end: vec![100.0; starts.len()],
            slice_row: (0..ranks).chain(0..ranks).collect(),
            slice_kind: [SliceKind::Backward, SliceKind::WaitExposed]
                .into_iter()
                .flat_map(|kind| starts.iter().map(move |_| kind as u8))
                .collect(),
            slice_bucket: std::iter::repeat_n(u32::MAX, starts.len()).chain(0..ranks).collect(),
            slice_begin: zeros.iter().chain(starts).copied().collect(),
            slice_end: starts.iter().copied().chain(starts.iter().map(|_| last)).collect(),
            bucket_row: (0..ranks).collect(),
            bucket: vec![4; starts.len()],
            bucket_seq: vec![1; starts.len()],
            bucket_function: vec![4; starts.len()],
            bucket_comm: vec![0; starts.len()],
            bucket_bytes: vec![1 << 20; starts.len()],
            bucket_ready: starts.to_vec(),
            bucket_launch: starts.to_vec(),
            bucket_start: starts.to_vec(),
            bucket_end: vec![100.0; starts.len()],
            bucket_wait: starts.iter().map(|start| last - start).collect(),
            bucket_wait_clock_free: starts.iter().map(|start| last - start).collect(),
            ..Waterfall::default()
        };
        assert!(waterfall.is_consistent());
        waterfall
    }
}
