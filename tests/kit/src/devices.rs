//! Invented device samples, bursts and heartbeats of ranks, in addition to their simulated records.

use anyhow::ensure;
use wire::batch::{Batch, Note};
use wire::burst::{Activity, Burst, BurstOutcome, KernelTime};
use wire::clock::MonoNanos;
use wire::device::{DeviceFigure, DeviceSample};
use wire::ids::BatchSeq;
use wire::request::{RecordingRequest, Requests};

use crate::programs::post;
use crate::simulator::Simulation;

/// The usual clock of a device in megahertz, which is also its maximum.
const CLOCK: u64 = 1_980;

/// Adds a device sample to every batch. The device of `slow` reports the throttle `reasons` and this `clock` in
/// megahertz.
#[must_use]
pub fn sampled(mut simulation: Simulation, slow: usize, reasons: u64, clock: u64) -> Simulation {
    for received in &mut simulation.batches {
        let batch = &mut received.batch;
        let is_slow = batch.rank.0 as usize == slow;
        let (reasons, clock) = if is_slow { (reasons, clock) } else { (0, CLOCK) };
        batch.notes.push(Note::Device(DeviceSample {
            at: batch.anchor.mono,
            device: format!("a GPU at 0000:{:02x}:00.0", batch.rank.0 + 1),
            figures: [
                (DeviceFigure::UtilizationPercent, 97),
                (DeviceFigure::PowerMilliwatts, 512_500),
                (DeviceFigure::SmClockMegahertz, clock),
                (DeviceFigure::SmClockMostMegahertz, CLOCK),
                (DeviceFigure::ThrottleReasons, reasons),
            ]
            .into(),
        }));
    }
    simulation
}

/// Returns a burst of 1.5 seconds in which one kernel runs a hundred times.
#[must_use]
pub fn burst(request: RecordingRequest, kernel: &str, kernel_nanos: u64) -> Note {
    let kernel = KernelTime {
        phase: Some(wire::event::SpanKind::Backward),
        name: kernel.into(),
        calls: 100,
        total_nanos: 100 * kernel_nanos,
        longest_nanos: kernel_nanos,
    };
    let activity = Activity {
        records: 100,
        span_nanos: 1_500_000_000,
        compute_nanos: kernel.total_nanos,
        idle_nanos: 1_500_000_000 - kernel.total_nanos,
        gaps: 12,
        longest_gap_nanos: 400_000,
        kernels: vec![kernel],
        ..Activity::default()
    };
    let (from, until) = (MonoNanos(0), MonoNanos(1_500_000_000));
    Note::Burst(Burst { request: request.number, from, until, outcome: BurstOutcome::Recorded(activity) })
}

/// Batches without records that continue the sequence numbers of a simulation.
pub struct Heartbeats {
    /// The last batch of each rank.
    lasts: Vec<Batch>,
    sent: u64,
}

impl Heartbeats {
    /// Creates the heartbeats of the simulation's ranks.
    #[must_use]
    pub fn new(simulation: &Simulation) -> Self {
        let mut lasts: Vec<Batch> = Vec::new();
        for batch in simulation.batches.iter().map(|received| &received.batch) {
            match lasts.iter_mut().find(|last| last.rank == batch.rank) {
                Some(last) if last.seq > batch.seq => {}
                Some(last) => *last = batch.clone(),
                None => lasts.push(batch.clone()),
            }
        }
        lasts.sort_by_key(|last| last.rank);
        Self { lasts, sent: 0 }
    }

    /// Sends one batch as an agent does. Returns the burst that the server requests in its answer.
    ///
    /// # Errors
    /// Returns an error if the server rejects the batch.
    pub fn send(
        &mut self,
        rank: usize,
        notes: Vec<Note>,
        address: &str,
    ) -> anyhow::Result<Option<RecordingRequest>> {
        self.sent += 1;
        let seq = BatchSeq(self.lasts[rank].seq.0 + self.sent);
        let batch = Batch { seq, notes, events: Vec::new(), probes: Vec::new(), ..self.lasts[rank].clone() };
        let answer = post(address, &batch)?;
        ensure!(answer.status().is_success(), "the server answered {}", answer.status());
        let headers = answer.headers();
        Ok(Requests::from_headers(|name| headers.get(name)?.to_str().ok()).burst)
    }
}
