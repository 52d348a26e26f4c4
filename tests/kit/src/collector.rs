//! A server that accepts every batch and passes it on to the test, which can then check recorded times to the
//! nanosecond before any analysis.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::sync::mpsc::{Receiver, Sender, channel};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{AppendHeaders, IntoResponse};
use tokio::net::TcpListener;
use wire::batch::{Batch, RECEIPT_HEADER};

/// A server that listens until it is dropped.
pub struct Collector {
    /// The address: `http://127.0.0.1:PORT`.
    pub address: String,
    /// The received batches, in order of arrival.
    pub batches: Receiver<Batch>,
    _runtime: tokio::runtime::Runtime,
}

impl Collector {
    /// Starts a collector on a free port.
    ///
    /// # Errors
    /// Returns an error if it cannot listen.
    pub fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = format!("http://{}", listener.local_addr()?);
        let (sender, batches) = channel();
        let router = Router::new().fallback(take).layer(DefaultBodyLimit::disable()).with_state(sender);
        runtime.spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, batches, _runtime: runtime })
    }
}

async fn take(State(batches): State<Sender<Batch>>, body: Bytes) -> impl IntoResponse {
    let mut receipt = None;
    if let Ok(batch) = wire::codec::decode(&body) {
        receipt = Some([(RECEIPT_HEADER, batch.receipt())]);
        // An error means that the test has ended and no longer receives batches.
        let _ended = batches.send(batch);
    }
    (receipt.map(AppendHeaders), r#"{"received_nanos":0,"sent_nanos":0}"#)
}
