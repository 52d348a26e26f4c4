//! Stores the batches of an imported run as those of agents are, with patience while the server is busy.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use import::job::Round;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use wire::ids::RunId;

/// The number of batches that are offered at the same time. One sync of a server's disk serves all of them.
const AT_ONCE: usize = 8;
/// How often a batch is offered to a server that is busy.
const OFFERS: u32 = 30;
/// The pause between two offers.
const OFFER_AGAIN: Duration = Duration::from_secs(1);

/// What takes batches: this server, or another one.
pub trait Store: Clone + Send + 'static {
    /// The reason why a batch is not stored.
    type Error: Display + From<JoinError> + Send + 'static;

    /// Offers a batch once.
    fn offer(&self, frame: Bytes) -> impl Future<Output = Result<(), NotTaken<Self::Error>>> + Send;
}

/// The reason why a batch was not stored when it was offered.
#[derive(Debug)]
pub enum NotTaken<E> {
    /// The server is busy: the same offer may succeed later.
    Busy(E),
    /// Another offer would fail as well.
    Refused(E),
}

/// The reason why not all batches are stored.
#[derive(Debug, thiserror::Error)]
pub enum NotStored<E> {
    #[error("{0}")]
    Nothing(E),
    #[error("run {run} is incomplete, because {stored} of its {batches} batches are stored: {reason:#}")]
    Partly {
        run: RunId,
        stored: usize,
        /// The number of all batches of the run.
        batches: usize,
        reason: E,
    },
}

/// Stores the batches of `run`, a round whole before the next one. `count_bytes` is told the size of each that is stored.
///
/// # Errors
/// Returns an error if a batch is refused, or the server stays busy.
pub async fn store<S: Store>(
    store: &S,
    run: &RunId,
    rounds: Vec<Round>,
    count_bytes: impl Fn(usize),
) -> Result<(), NotStored<S::Error>> {
    let batches = rounds.iter().map(Vec::len).sum();
    let mut stored = 0;
    for round in rounds {
        let mut frames = round.into_iter();
        let mut offers = JoinSet::new();
        loop {
            let more = frames.by_ref().take(AT_ONCE - offers.len());
            more.for_each(|frame| drop(offers.spawn(store_batch(store.clone(), frame.into()))));
            let Some(offered) = offers.join_next().await else { break };
            let size = offered.map_err(S::Error::from).flatten().map_err(|reason| match stored {
                0 => NotStored::Nothing(reason),
                _ => NotStored::Partly { run: run.clone(), stored, batches, reason },
            })?;
            count_bytes(size);
            stored += 1;
        }
    }
    Ok(())
}

/// Stores a batch, and returns its size.
async fn store_batch<S: Store>(store: S, frame: Bytes) -> Result<usize, S::Error> {
    let mut left = OFFERS;
    loop {
        left -= 1;
        match store.offer(frame.clone()).await {
            Ok(()) => return Ok(frame.len()),
            Err(NotTaken::Busy(_)) if left > 0 => sleep(OFFER_AGAIN).await,
            Err(NotTaken::Busy(reason) | NotTaken::Refused(reason)) => return Err(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Takes as many batches as it has room for.
    #[derive(Clone)]
    struct Shelf {
        room: usize,
        taken: Arc<Mutex<Vec<Bytes>>>,
    }

    impl Store for Shelf {
        type Error = anyhow::Error;

        async fn offer(&self, frame: Bytes) -> Result<(), NotTaken<anyhow::Error>> {
            let mut taken = self.taken.lock().unwrap();
            if taken.len() == self.room {
                return Err(NotTaken::Refused(anyhow::anyhow!("the shelf is full")));
            }
            taken.push(frame);
            Ok(())
        }
    }

    /// Stores rounds of two batches and of one on a shelf. Returns the error, and the batches that were stored.
    async fn stored(room: usize) -> (Option<String>, Vec<Bytes>) {
        let shelf = Shelf { room, taken: Arc::default() };
        let rounds = vec![vec![vec![0], vec![0]], vec![vec![1]]];
        let result = store(&shelf, &wire::fixtures::run(), rounds, |bytes| assert_eq!(bytes, 1)).await;
        let taken = shelf.taken.lock().unwrap().clone();
        (result.err().map(|error| error.to_string()), taken)
    }

    #[tokio::test]
    async fn rounds_are_stored_in_turn_and_an_error_says_how_much_of_the_run_is_stored() {
        assert_eq!(
            stored(3).await,
            (None, [[0], [0], [1]].map(|frame| Bytes::copy_from_slice(&frame)).to_vec())
        );
        let (error, taken) = stored(2).await;
        let sentence = "run r is incomplete, because 2 of its 3 batches are stored: the shelf is full";
        assert_eq!((error.as_deref(), taken.len()), (Some(sentence), 2));
        assert_eq!(stored(0).await, (Some("the shelf is full".into()), Vec::new()));
    }
}
