//! The metrics of the server itself.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts};

use super::families::{Families, duration_buckets};

/// What unauthorized requests have instead of the token, as the label `reason` says it.
pub const LACKS: [&str; 3] = ["no_token", "wrong_token", "ended_session"];

/// The metrics of the server itself (`paceline_server_*`).
#[derive(Clone)]
pub struct ServerMetrics {
    /// The number of durable batches.
    pub batches: IntCounter,
    /// The number of records in durable batches.
    pub records: IntCounter,
    /// The size of durable batches, in bytes.
    pub bytes: IntCounter,
    /// The number of requests that were refused because they hold no valid batch.
    pub refused: IntCounter,
    /// The number of batches that were refused because they contradict their run.
    pub conflicts: IntCounter,
    /// The number of batches that were deferred because there was no room.
    pub deferred: IntCounter,
    /// The number of clients of the live stream.
    pub live_clients: IntGauge,
    /// The number of runs that are set aside.
    pub set_aside: IntGauge,
    /// The number of live runs without series, because there would be too many.
    pub without_series: IntGauge,
    /// Whether batches can be stored: 1, or 0 if the disk refused the newest ones.
    pub can_store: IntGauge,
    syncs: Histogram,
    unauthorized: IntCounterVec,
}

impl ServerMetrics {
    pub(super) fn new(families: &mut Families) -> Self {
        let can_store = families.gauge(
            "paceline_server_can_store",
            "Whether batches of a new run can be stored: 0 if the disk refuses them.",
        );
        can_store.set(1);
        let unauthorized = Opts::new(
            "paceline_server_unauthorized_total",
            "Requests without the server's token, by what they had instead.",
        );
        let unauthorized = IntCounterVec::new(unauthorized, &["reason"]).expect("the name is valid");
        // A counter that begins at 0 shows its first increase.
        LACKS.iter().for_each(|lack| drop(unauthorized.with_label_values(&[lack])));
        let syncs =
            HistogramOpts::new("paceline_server_sync_seconds", "Time to sync a group of batches to disk.")
                .buckets(duration_buckets(1e-4));
        Self {
            batches: families.counter("paceline_server_batches_total", "Durable batches."),
            records: families.counter("paceline_server_records_total", "Records in durable batches."),
            bytes: families.counter("paceline_server_bytes_total", "Bytes of durable batches."),
            refused: families.counter("paceline_server_refused_total", "Ingest requests without a valid batch."),
            conflicts: families.counter("paceline_server_conflicts_total",
            "Batches refused because they contradict their run, because another process has their rank, or because \
             their run cannot be read."),
            deferred: families.counter("paceline_server_deferred_total", "Batches deferred for lack of room."),
            live_clients: families.gauge("paceline_server_live_clients", "Clients of the live stream."),
            set_aside: families.gauge("paceline_server_runs_set_aside", "Runs that are set aside."),
            without_series: families.gauge("paceline_server_runs_without_series",
            "Live runs without series, because there would be too many."),
            can_store,
            unauthorized: families.add(unauthorized),
            syncs: families.add(Histogram::with_opts(syncs).expect("the name is valid")),
        }
    }

    /// Counts a request that was refused because it lacks the token. `lack` is one of [`LACKS`].
    pub fn unauthorized(&self, lack: &str) {
        self.unauthorized.with_label_values(&[lack]).inc();
    }

    /// Records the time that it took to sync a group of batches to disk.
    pub fn synced(&self, took: Duration) {
        self.syncs.observe(took.as_secs_f64());
    }
}
