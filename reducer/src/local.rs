//! Threads of one process as ranks: the reference that other communicators are compared with.
//!
//! Every rank adds all contributions in the order of ranks, so the result is deterministic and does not depend on the
//! layout of parameters in buckets. The code aims at being obviously correct, not fast.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::ids::{Rank, Seq};

use crate::communicator::{AbortHandle, Communicator, Control, Operation};
use crate::error::{Absent, CommError};

/// One rank of a world of threads.
pub struct Local {
    rank: Rank,
    next: u64,
    /// The error that this rank has returned, and returns from every later call.
    failed: Option<CommError>,
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rounds: BTreeMap<u64, Round>,
    begun: Vec<u64>,
    left: Vec<bool>,
    verdict: Option<CommError>,
}

impl State {
    /// Returns an error that names a rank which left before it began collective `seq`, if there is one.
    fn lost_before(&self, seq: u64) -> Option<CommError> {
        let (rank, _) = (0..).zip(&self.left).find(|(rank, left)| **left && self.begun[*rank] <= seq)?;
        let reason = format!("it left before collective {seq}");
        Some(CommError::RankLost { rank: Rank(rank as u32), reason })
    }

    fn timed_out(&self, seq: u64, waited: Duration) -> CommError {
        let absent = (0..).map(Rank).zip(&self.begun).filter(|(_, begun)| **begun <= seq);
        let absent = absent.map(|(rank, begun)| Absent { rank, begun: Some(*begun) }).collect();
        CommError::TimedOut { seq: Seq(seq), waited, absent }
    }
}

struct Round {
    deposits: Vec<Option<Deposit>>,
    taken: usize,
}

#[derive(Clone)]
struct Deposit {
    collective: Operation,
    payload: Payload,
}

#[derive(Clone)]
enum Payload {
    Floats(Arc<[f32]>),
    Bytes(Arc<[u8]>),
}

/// Returns the ranks of a world of `size` threads. A collective that is not complete after `timeout` fails on all
/// ranks.
#[must_use]
pub fn world(size: u32, timeout: Duration) -> Vec<Local> {
    let state = State { begun: vec![0; size as usize], left: vec![false; size as usize], ..State::default() };
    let shared = Shared { size: size as usize, timeout, state: Mutex::new(state), changed: Condvar::new() };
    let shared = Arc::new(shared);
    (0..size).map(|rank| Local { rank: Rank(rank), next: 0, failed: None, shared: shared.clone() }).collect()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A rank that panicked while holding the lock left a consistent state, because every change is one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: CommError) {
        self.state().verdict.get_or_insert(error);
        self.changed.notify_all();
    }
}

impl Local {
    /// Deposits this rank's payload for the next collective and returns the payloads of all ranks.
    fn exchange(&mut self, collective: Operation, payload: Payload) -> Result<Vec<Payload>, CommError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let (seq, size) = (self.next, self.shared.size);
        self.next += 1;
        let mut state = self.shared.state();
        state.begun[self.rank.0 as usize] = self.next;
        let round = state.rounds.entry(seq).or_insert_with(|| Round { deposits: vec![None; size], taken: 0 });
        let peer =
            (0..).zip(&round.deposits).find_map(|(rank, d)| d.as_ref().map(|d| (Rank(rank), d.collective)));
        if let Some((peer, theirs)) = peer.filter(|(_, theirs)| *theirs != collective) {
            let (ours, theirs) = (collective.to_string(), theirs.to_string());
            let error = CommError::Mismatch {
                rank: self.rank,
                ours: (Seq(seq), ours),
                peer,
                theirs: (Seq(seq), theirs),
            };
            state.verdict.get_or_insert(error);
        } else {
            round.deposits[self.rank.0 as usize] = Some(Deposit { collective, payload });
        }
        self.shared.changed.notify_all();
        let all = self.wait_for(seq, state);
        self.failed = all.as_ref().err().cloned();
        all
    }

    fn wait_for(&self, seq: u64, mut state: MutexGuard<'_, State>) -> Result<Vec<Payload>, CommError> {
        let deadline = Instant::now() + self.shared.timeout;
        loop {
            // Checked first, because a rank may have failed in a later collective while this one slept.
            if let Some(all) = take(&mut state, seq) {
                return Ok(all);
            }
            if let Some(verdict) = &state.verdict {
                return Err(verdict.clone());
            }
            if let Some(lost) = state.lost_before(seq) {
                state.verdict = Some(lost);
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.verdict = Some(state.timed_out(seq, self.shared.timeout));
                self.shared.changed.notify_all();
                continue;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn take(state: &mut State, seq: u64) -> Option<Vec<Payload>> {
    let round = state.rounds.get_mut(&seq)?;
    let all: Vec<_> =
        round.deposits.iter().map(|d| d.as_ref().map(|d| d.payload.clone())).collect::<Option<_>>()?;
    round.taken += 1;
    if round.taken == all.len() {
        state.rounds.remove(&seq);
    }
    Some(all)
}

fn bytes_of(payloads: Vec<Payload>) -> Vec<Vec<u8>> {
    let bytes = |payload| match payload {
        Payload::Bytes(bytes) => bytes.to_vec(),
        Payload::Floats(_) => unreachable!("the ranks agreed on the collective"),
    };
    payloads.into_iter().map(bytes).collect()
}

impl Communicator for Local {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world_size(&self) -> u32 {
        self.shared.size as u32
    }

    fn next_seq(&self) -> Seq {
        Seq(self.next)
    }

    fn all_reduce(&mut self, data: &mut [f32]) -> Result<(), CommError> {
        let all = self.exchange(Operation::AllReduce(data.len() as u64), Payload::Floats((&*data).into()))?;
        for (index, payload) in all.into_iter().enumerate() {
            let Payload::Floats(floats) = payload else { unreachable!("the ranks agreed on the collective") };
            if index == 0 {
                data.copy_from_slice(&floats);
            } else {
                data.iter_mut().zip(&*floats).for_each(|(sum, value)| *sum += value);
            }
        }
        Ok(())
    }

    fn broadcast(&mut self, root: Rank, bytes: &mut Vec<u8>) -> Result<(), CommError> {
        let all = self.exchange(Operation::Broadcast(root), Payload::Bytes((&**bytes).into()))?;
        *bytes = bytes_of(all).swap_remove(root.0 as usize);
        Ok(())
    }

    fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        self.exchange(Operation::AllGather, Payload::Bytes(bytes.into())).map(bytes_of)
    }

    fn abort_handle(&self) -> AbortHandle {
        let (shared, rank) = (self.shared.clone(), self.rank);
        AbortHandle::new(move |reason| shared.fail(CommError::RankFailed { rank, reason: reason.into() }))
    }
}

impl Control for Local {
    fn count(&mut self) -> Result<Seq, CommError> {
        if let Some(verdict) = self.verdict() {
            return Err(verdict);
        }
        let seq = Seq(self.next);
        self.next += 1;
        self.shared.state().begun[self.rank.0 as usize] = self.next;
        Ok(seq)
    }

    fn verdict(&self) -> Option<CommError> {
        let state = self.shared.state();
        let lost = || self.next.checked_sub(1).and_then(|seq| state.lost_before(seq));
        self.failed.clone().or_else(|| state.verdict.clone()).or_else(lost)
    }

    fn overdue(&mut self, seq: Seq, waited: Duration) -> CommError {
        let mut state = self.shared.state();
        let verdict = state.timed_out(seq.0, waited);
        let verdict = state.verdict.get_or_insert(verdict).clone();
        drop(state);
        self.shared.changed.notify_all();
        verdict
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Collectives that this rank has joined still complete. Ranks that wait for it in a later one get an error.
        let mut state = self.shared.state();
        state.left[self.rank.0 as usize] = true;
        drop(state);
        self.shared.changed.notify_all();
    }
}
