//! What a launcher says of ranks that ended badly: a rank that was killed cannot say goodbye itself.

use std::process::ExitStatus;
use std::time::{Duration, SystemTime};

use wire::batch::{Batch, Bye, Note};
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
use wire::ids::{BatchSeq, Incarnation, Rank};

use super::{Job, how_it_ended};

/// The server has this long; a job's end does not wait for it longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Sends one goodbye for each of `failed`, of so many ranks. A server that cannot be reached finds out by silence.
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
        // A job that sent no records has no run, and gets none by this.
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
            // See above: silence says the same, only later.
            let _unreachable = post.send(frame.as_slice());
        }
    };
    let _panicked = tokio::task::spawn_blocking(work).await;
}

/// A client for the launcher's few requests.
pub(crate) fn client() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(ANSWER_WITHIN)).proxy(None).build().new_agent()
}

fn goodbye(job: &Job, (rank, ranks): (u32, u32), status: ExitStatus) -> Batch {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Batch {
        run: job.run.clone(),
        rank: Rank(rank),
        world_size: ranks,
        // Later than any life of the rank: those are numbered by the time they began.
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
