//! End-of-run messages for failed ranks, sent by the launcher. A rank that was killed cannot send its own.

use std::process::ExitStatus;
use std::time::{Duration, SystemTime};

use wire::batch::{Batch, Bye, Note};
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
use wire::ids::{BatchSeq, Incarnation, Rank};

use super::{Job, how_it_ended};

/// The time limit for each request to the server, so an unreachable server does not delay the end of a job.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Sends an end-of-run message for each of the `failed` ranks of a job with `ranks` ranks. A server that cannot be
/// reached notices the failure later, because the ranks are silent.
pub(super) async fn send(job: &Job, ranks: u32, failed: &[(u32, ExitStatus)]) {
    let url = job.server.clone();
    let authorization = job.token.as_ref().map(|token| format!("Bearer {token}"));
    let frames: Vec<Vec<u8>> = failed
        .iter()
        .filter_map(|&(rank, status)| wire::codec::encode(&goodbye(job, (rank, ranks), status)).ok())
        .collect();
    let run = job.run.clone();
    let work = move || {
        let client = client();
        let with = |name: &str, value: &Option<String>| value.clone().map(|value| (name.to_owned(), value));
        let header = with("authorization", &authorization);
        // A job that sent no records has no run on the server, and these messages must not create one.
        let mut known = client.get(format!("{url}/api/v1/runs/{run}/summary"));
        if let Some((name, value)) = &header {
            known = known.header(name, value);
        }
        if known.call().is_err() {
            return;
        }
        for frame in frames {
            let mut post = client.post(format!("{url}/api/v1/ingest"));
            if let Some((name, value)) = &header {
                post = post.header(name, value);
            }
            // If the server cannot be reached, it notices the failure later, because the rank is silent.
            let _unreachable = post.send(frame.as_slice());
        }
    };
    let _panicked = tokio::task::spawn_blocking(work).await;
}

/// Returns an HTTP client for the launcher's requests.
pub(crate) fn client() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(ANSWER_WITHIN)).proxy(None).build().new_agent()
}

fn goodbye(job: &Job, (rank, ranks): (u32, u32), status: ExitStatus) -> Batch {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Batch {
        run: job.run.clone(),
        rank: Rank(rank),
        world_size: ranks,
        // Incarnations are numbered by the time when they began, so this one is newer than all of the rank's own.
        incarnation: Incarnation(((since_epoch.as_micros() as u64) << 12) | 0xfff),
        seq: BatchSeq(0),
        anchor: ClockAnchor { mono: MonoNanos(0), unix: UnixNanos(since_epoch.as_nanos() as i64) },
        probes: Vec::new(),
        drops: Vec::new(),
        notes: vec![Note::Bye(Bye {
            completed: false,
            reason: format!("rank {rank} {}", how_it_ended(status)),
        })],
        events: Vec::new(),
    }
}
