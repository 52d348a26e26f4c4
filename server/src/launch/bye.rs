//! End-of-run messages for failed ranks, sent by the launcher. A rank that was killed cannot send its own.

use std::time::{Duration, Instant, SystemTime};

use wire::batch::{Batch, Bye, Note};
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
use wire::ids::{BatchSeq, Incarnation, Rank, RunId};
use wire::views::Report;

use super::ends::Ends;
use super::{Failed, Job, how_it_ended, processes};

/// The time limit for each request to the server, so an unreachable server does not delay the end of a job.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The time in which the last processes of a job end after its launcher.
const LEFT_WITHIN: Duration = Duration::from_secs(2);
/// The interval at which they are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Sends an end-of-run message for each of the `failed` ranks of a job with `ranks` ranks. A server that cannot be
/// reached notices the failure later, because the ranks are silent.
pub(super) async fn send(job: &Job, ranks: u32, failed: &[Failed]) {
    let post = Post::new(job);
    let bye = |&Failed { rank, status, at }: &Failed| {
        bye(&post.run, (Rank(rank), ranks), &how_it_ended(status), at)
    };
    let messages: Vec<Batch> = failed.iter().map(bye).collect();
    let work = move || {
        // A job that sent no records has no run on the server, and these messages must not create one.
        if post.get("/summary").is_some() {
            post.send(&messages);
        }
    };
    let _panicked = tokio::task::spawn_blocking(work).await;
}

/// Sends an end-of-run message for each rank on this host of a job that another launcher, such as torchrun, has started. That one has
/// failed, and how each rank ended is not known here; when it ended is, if all `ends` were seen. The server ignores the messages for
/// ranks that have sent their own. While a process of the job is left, nothing is sent.
pub(super) async fn send_for_launcher(job: &Job, ends: Ends, was_interrupted: bool) {
    let post = Post::new(job);
    let work = move || {
        if !all_are_gone(&post.run) {
            return;
        }
        let Some(report) =
            post.get("?window=recent").and_then(|text| serde_json::from_str::<Report>(&text).ok())
        else {
            return;
        };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let here = report.hosts.iter().filter(|placed| placed.host == host);
        let ranks: Vec<Rank> = here.flat_map(|placed| placed.ranks.0..=placed.ranks.1).map(Rank).collect();
        let how = if was_interrupted {
            "was interrupted with the job"
        } else {
            "ended without a word, perhaps killed for lack of memory"
        };
        // A rank whose end was not seen may have been the first. Then the order is unknown, and all have one time.
        let now = SystemTime::now();
        let all_were_seen = ranks.iter().all(|rank| ends.contains_key(rank));
        let end = |rank: &Rank| ends.get(rank).copied().filter(|_| all_were_seen).unwrap_or(now);
        let bye = |rank: &Rank| bye(&post.run, (*rank, report.ranks), how, end(rank));
        let messages: Vec<Batch> = ranks.iter().map(bye).collect();
        post.send(&messages);
    };
    let _panicked = tokio::task::spawn_blocking(work).await;
}

/// Returns true once no process of this run is left on this host. Helpers of a job, such as the resource tracker of Python's
/// multiprocessing, end a moment after it.
fn all_are_gone(run: &RunId) -> bool {
    let deadline = Instant::now() + LEFT_WITHIN;
    while processes::all().any(|pid| processes::is_of(pid, run) == Some(true)) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

/// Requests to the server about one run.
struct Post {
    url: String,
    authorization: Option<String>,
    run: RunId,
    client: ureq::Agent,
}

impl Post {
    fn new(job: &Job) -> Self {
        let authorization = job.token.as_ref().map(|token| format!("Bearer {token}"));
        Self { url: job.server.clone(), authorization, run: job.run.clone(), client: client() }
    }

    /// Returns the server's answer at a path, or a query, below that of the run; `None` if there is none.
    fn get(&self, below: &str) -> Option<String> {
        let Self { url, run, .. } = self;
        let mut request = self.client.get(format!("{url}/api/v1/runs/{run}{below}"));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        request.call().ok()?.body_mut().read_to_string().ok()
    }

    fn send(&self, messages: &[Batch]) {
        for frame in messages.iter().filter_map(|message| wire::codec::encode(message).ok()) {
            let mut request = self.client.post(format!("{}/api/v1/ingest", self.url));
            if let Some(authorization) = &self.authorization {
                request = request.header("authorization", authorization);
            }
            // If the server cannot be reached, it notices the failure later, because the rank is silent.
            let _unreachable = request.send(frame.as_slice());
        }
    }
}

/// Returns an HTTP client for the launcher's requests.
pub(crate) fn client() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(ANSWER_WITHIN)).proxy(None).build().new_agent()
}

/// Returns the end-of-run message of a rank of `ranks`, which says how it ended ("was killed by signal 9") and when.
fn bye(run: &RunId, (rank, ranks): (Rank, u32), how: &str, at: SystemTime) -> Batch {
    let since_epoch = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Batch {
        run: run.clone(),
        rank,
        world_size: ranks,
        // Incarnations are numbered by the time when they began, so this one is newer than all of the rank's own.
        incarnation: Incarnation(((since_epoch(SystemTime::now()).as_micros() as u64) << 12) | 0xfff),
        seq: BatchSeq(0),
        anchor: ClockAnchor { mono: MonoNanos(0), unix: UnixNanos(since_epoch(at).as_nanos() as i64) },
        probes: Vec::new(),
        drops: Vec::new(),
        notes: vec![Note::Bye(Bye { completed: false, reason: format!("rank {rank} {how}") })],
        events: Vec::new(),
    }
}
