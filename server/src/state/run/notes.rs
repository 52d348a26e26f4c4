//! The notes of batches: what a rank says of itself, apart from the records of its steps.

use std::sync::Arc;

use wire::batch::{Bye, Hello, Note};
use wire::clock::{ClockAnchor, ServerNanos};
use wire::device::DeviceSample;
use wire::host::HostSample;
use wire::ids::{Rank, Step};

use super::attributes::with_printable_texts;
use super::goodput::process_start;
use super::printable::{
    with_printable_frames, with_printable_line, with_printable_names, with_printable_parameters,
    with_printable_rows, with_printable_stacks, with_printable_unit,
};
use super::usage::Sample;
use super::{RankState, devices, hello_bytes};
use crate::printable::one_line;

/// The batch that notes arrived with.
pub(super) struct Arrival {
    pub(super) rank: Rank,
    /// When the batch was made, on the clocks of its sender.
    pub(super) anchor: ClockAnchor,
    pub(super) now: ServerNanos,
    /// Whether the launcher sent it, because the rank ended without a word.
    pub(super) by_launcher: bool,
    pub(super) world_size: usize,
}

/// What notes say that concerns more than the state of their rank.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) samples: Vec<Sample>,
    /// The step that the process resumes.
    pub(super) resumed: Option<Step>,
}

impl RankState {
    /// Applies one note.
    pub(super) fn hear(&mut self, note: Note, arrival: &Arrival, heard: &mut Heard) {
        let now = arrival.now;
        match note {
            Note::Hello(hello) => self.hear_hello(hello),
            Note::Attributes(more) => {
                self.attributes.get_or_insert_default().extend(with_printable_texts(more));
            }
            Note::Layout(layout) => self.layouts.add(arrival.rank, with_printable_parameters(layout)),
            Note::Bye(bye) => self.hear_bye(&bye, arrival),
            Note::Device(sample) => {
                self.hear_device(sample.clone(), now);
                heard.samples.push(Sample::Device(sample));
            }
            Note::Burst(burst) => self.devices.add_burst(burst, now),
            Note::Stacks(stacks) => self.stacks.add(with_printable_frames(stacks)),
            Note::LongStep(long) => {
                self.own_code.add_long_step(with_printable_stacks(long), arrival.world_size);
            }
            Note::Line(line) => self.own_code.add_line(with_printable_line(line)),
            Note::Workload(workload) => self.workload = Some(with_printable_unit(workload)),
            Note::Resumed { step } => heard.resumed = Some(step),
            Note::Waits { waiting } => self.wait_in(waiting, arrival.anchor.mono, now),
            Note::Traced(summary) => self.summary = Some(Arc::new(with_printable_rows(summary))),
            Note::Host(sample) => {
                self.hear_host(&sample);
                heard.samples.push(Sample::Host(sample));
            }
        }
    }

    fn hear_hello(&mut self, hello: Hello) {
        self.lifeline.set_clock(&hello.clock);
        if hello.instrumentation.is_unmodified_job() {
            self.lifeline.counts_from_its_start();
        }
        self.hello = Some(with_printable_names(hello));
    }

    /// Notes the end of the process. A rank's own end-of-run message takes precedence over its launcher's.
    fn hear_bye(&mut self, bye: &Bye, arrival: &Arrival) {
        if self.bye.is_some() {
            return;
        }
        self.lifeline.end(bye.completed);
        self.bye = Some(bye.completed);
        self.bye_reason = one_line(&bye.reason).into_owned();
        self.bye_by_launcher = arrival.by_launcher;
        self.seen_to_end = arrival.by_launcher.then_some(arrival.anchor.unix);
    }

    fn hear_device(&mut self, sample: DeviceSample, now: ServerNanos) {
        self.device_errors.add(self.devices.newest(), &sample, now);
        self.devices.add_sample(sample, now);
    }

    fn hear_host(&mut self, sample: &HostSample) {
        process_start(sample).into_iter().for_each(|at| self.lifeline.began(at));
        Arc::make_mut(&mut self.host).add(sample);
    }
}

/// Returns the size that a note adds to its rank's state, in bytes.
pub(super) fn note_bytes(note: &Note) -> usize {
    match note {
        Note::Hello(hello) => hello_bytes(hello),
        Note::Attributes(attributes) => attributes.bytes(),
        Note::Bye(bye) => bye.reason.len(),
        Note::Device(_) => devices::SAMPLE_BYTES,
        Note::Burst(burst) => devices::burst_bytes(burst),
        Note::Stacks(stacks) => stacks.bytes(),
        Note::LongStep(long) => long.bytes(),
        Note::Line(line) => line.bytes(),
        Note::Workload(workload) => workload.bytes(),
        Note::Resumed { .. } | Note::Waits { .. } => 0,
        Note::Traced(summary) => summary.bytes(),
        // The sample's figures replace older ones.
        Note::Host(sample) => sample.cores.len(),
        Note::Layout(layout) => layout.bytes(),
    }
}
