//! What the server says about itself.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge};

use super::{Families, duration_buckets};

/// What the server says about itself.
#[derive(Clone)]
pub struct ServerMetrics {
    /// Batches made durable.
    pub batches: IntCounter,
    /// Records in them.
    pub records: IntCounter,
    /// Bytes of batches.
    pub bytes: IntCounter,
    /// Batches refused because they are no batches.
    pub refused: IntCounter,
    /// Batches refused because they contradict what is there.
    pub conflicts: IntCounter,
    /// Batches sent away because there was no room.
    pub deferred: IntCounter,
    /// Clients of the live stream.
    pub live_clients: IntGauge,
    /// Runs that are set aside.
    pub set_aside: IntGauge,
    /// Runs without series of their own, since all runs together have as many as they may.
    pub without_series: IntGauge,
    syncs: Histogram,
}

impl ServerMetrics {
    pub(super) fn new(families: &mut Families) -> Self {
        let mut counter =
            |name: &str, help: &str| families.add(IntCounter::new(name, help).expect("the name is valid"));
        let batches = counter("paceline_server_batches_total", "Batches made durable.");
        let records = counter("paceline_server_records_total", "Records in durable batches.");
        let bytes = counter("paceline_server_bytes_total", "Bytes of durable batches.");
        let refused = counter("paceline_server_refused_total", "Requests to ingest that were no batches.");
        let conflicts = counter(
            "paceline_server_conflicts_total",
            "Batches refused because they contradict their run, another process has their rank, or their run cannot be \
             read.",
        );
        let deferred = counter("paceline_server_deferred_total", "Batches told to come again later.");
        let mut gauge =
            |name: &str, help: &str| families.add(IntGauge::new(name, help).expect("the name is valid"));
        let live_clients = gauge("paceline_server_live_clients", "Clients of the live stream.");
        let set_aside = gauge("paceline_server_runs_set_aside", "Runs that cannot be read or worked on.");
        let without_series = gauge(
            "paceline_server_runs_without_series",
            "Live runs that have no series of their own, since there would be too many.",
        );
        let syncs =
            HistogramOpts::new("paceline_server_sync_seconds", "Time to sync a group of batches to disk.")
                .buckets(duration_buckets(1e-4));
        Self {
            batches,
            records,
            bytes,
            refused,
            conflicts,
            deferred,
            live_clients,
            set_aside,
            without_series,
            syncs: families.add(Histogram::with_opts(syncs).expect("the name is valid")),
        }
    }

    /// A group of batches was synced to disk in `took`.
    pub fn synced(&self, took: Duration) {
        self.syncs.observe(took.as_secs_f64());
    }
}
