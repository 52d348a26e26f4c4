//! Batches: each is checked, made durable, acknowledged and applied. A batch that begins a run is acknowledged once it is applied.
//!
//! A batch that is not durable is never applied. Otherwise its agent, which sends it again, would be told that it arrived
//! before, and would drop it. The hub does not wait for the disk: the batch comes back once it is stored.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::request::Requests;

use super::Task;
use crate::state::budget;
use crate::state::collection::Held;
use crate::state::command::{AcceptReply, Accepted, Arrived, Command, Waiting};
use crate::state::refusal::{ApplyError, NotAccepted};
use crate::state::run::Run;
use crate::store::log::Log;
use crate::store::log::writer::Record;
use crate::store::losses::Loss;

/// What is known of a batch that may be stored.
struct Admitted {
    /// Whether the server does not know the batch's run yet.
    is_first: bool,
    /// What the batch's rank is asked for.
    asked: Requests,
    /// Whether the batch's steps have other numbers than those that its rank sent.
    is_renumbered: bool,
}

/// A batch that is stored, or could not be.
pub(super) struct Stored {
    batch: Box<Batch>,
    received: ServerNanos,
    room: OwnedSemaphorePermit,
    reply: AcceptReply,
    admitted: Admitted,
    appended: Result<Appended, NotAccepted>,
}

/// What the log says of a stored batch.
struct Appended {
    /// What the batch takes on disk, in bytes.
    bytes: u64,
    /// The earlier batches of the run that were found to be removed from the disk.
    lost: Vec<Loss>,
}

impl Task {
    /// Checks a batch, and passes it to the log if it may be stored.
    pub(super) fn check(&mut self, mut arrived: Arrived) {
        match self.admit(&mut arrived.batch) {
            Ok(admitted) => {
                let log = self.log.clone();
                self.storing.spawn(async move { store(&log, arrived, admitted).await });
            }
            Err(ApplyError::Duplicate) => {
                let _gone = arrived.reply.send(Ok(Accepted::Before));
            }
            Err(error) => deny(arrived.reply, error),
        }
    }

    /// Decides whether a batch may be stored, and numbers its steps as the run counts them.
    fn admit(&mut self, batch: &mut Batch) -> Result<Admitted, ApplyError> {
        let (now, count) = (self.clock.now(), self.runs.len());
        let most = self.runs.most_bytes();
        let share = most / self.runs.held.len().max(1);
        let Some(held) = self.runs.held.get_mut(&batch.run) else {
            self.admit_first(batch, count, most)?;
            return Ok(Admitted { is_first: true, asked: Requests::default(), is_renumbered: false });
        };
        let asked = held.pace.set(held.run.asked(batch.rank, now), held.run.first_seen(), now);
        if self.is_full && held.bytes() > share {
            return Err(ApplyError::NoRoom { run: batch.run.clone(), most });
        }
        if let Err(error) = held.run.admit(batch, now, self.accepting_since) {
            if error.is_refusal() {
                held.changed();
            }
            return Err(error);
        }
        let is_renumbered = held.run.renumber(batch);
        Ok(Admitted { is_first: false, asked, is_renumbered })
    }

    /// Decides whether a batch may begin a run.
    fn admit_first(&self, batch: &Batch, runs: usize, most_bytes: usize) -> Result<(), ApplyError> {
        if runs >= budget::RUNS {
            return Err(ApplyError::TooManyRuns(budget::RUNS));
        }
        if self.is_full {
            return Err(ApplyError::NoRoom { run: batch.run.clone(), most: most_bytes });
        }
        Run::check_alone(batch)
    }

    /// Applies a batch that is stored, and acknowledges it.
    pub(super) fn stored(&mut self, stored: Stored) {
        let Stored { batch, received, room, reply, admitted, appended } = stored;
        let Appended { bytes, lost } = match appended {
            Ok(appended) => appended,
            Err(error) => {
                let _gone = reply.send(Err(error));
                return;
            }
        };
        if !lost.is_empty() {
            self.take(Command::Lost { run: batch.run.clone(), lost });
        }
        let accepted = Accepted::Stored { bytes, asked: admitted.asked };
        let waiting = Waiting { accepted, reply };
        // Another batch may have become the first in the meantime, and have defined the run differently. In all other cases
        // the batch was admitted to its run. That run may have left memory since: it is then read from disk before the batch is
        // applied, and the agent does not wait for that.
        let waiting = if admitted.is_first {
            Some(waiting)
        } else {
            waiting.answer(Ok(()));
            None
        };
        self.take(Command::Apply { batch, received, room: Some(room), waiting });
    }

    pub(super) fn ingest(&mut self, batch: Batch, received: ServerNanos) -> Result<(), ApplyError> {
        let (id, notable_share) = (batch.run.clone(), self.runs.notable_share);
        let held = self.runs.held.entry(id.clone()).or_insert_with(|| {
            Held::new(Run::new(id.clone(), batch.world_size, received).judged_from(notable_share))
        });
        held.run.ingest(batch, received)?;
        held.changed();
        self.queue(&id);
        Ok(())
    }
}

/// Answers a batch that is not accepted. Other commands get no answer.
pub(super) fn refuse(command: Command, error: ApplyError) {
    if let Command::Ingest(arrived) = command {
        deny(arrived.reply, error);
    }
}

fn deny(reply: AcceptReply, error: ApplyError) {
    // The client may have disconnected.
    let _gone = reply.send(Err(error.into()));
}

async fn store(log: &Log, arrived: Arrived, admitted: Admitted) -> Stored {
    let Arrived { batch, frame, received, room, reply } = arrived;
    let appended = append(log, &batch, frame, received, admitted.is_renumbered).await;
    Stored { batch: Box::new(batch), received, room, reply, admitted, appended }
}

/// Makes a batch durable. What is stored has the numbers under which the steps are analyzed.
async fn append(
    log: &Log,
    batch: &Batch,
    frame: Bytes,
    received: ServerNanos,
    is_renumbered: bool,
) -> Result<Appended, NotAccepted> {
    let frame = match is_renumbered {
        true => {
            wire::codec::encode(batch).map_err(|error| NotAccepted::NotEncoded(error.to_string()))?.into()
        }
        false => frame,
    };
    let bytes = frame.len() as u64;
    let record = Record { received, frame, decoded_bytes: batch.held_bytes() as u64 };
    let lost = log.append(batch.run.clone(), record).await?;
    Ok(Appended { bytes, lost })
}
