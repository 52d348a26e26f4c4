//! A server that takes every batch and hands it to the test: for what is recorded, to the nanosecond, before anything is
//! made of it.

use std::sync::mpsc::{Receiver, Sender, channel};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{AppendHeaders, IntoResponse};
use tokio::net::TcpListener;
use wire::batch::{Batch, RECEIPT_HEADER};

/// Listens until the test ends.
pub struct Collector {
    /// `http://127.0.0.1:PORT`
    pub address: String,
    /// What came, in order.
    pub batches: Receiver<Batch>,
    _runtime: tokio::runtime::Runtime,
}

impl Collector {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When it cannot listen.
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
        // Nobody takes them any more when the test has ended.
        let _ended = batches.send(batch);
    }
    (receipt.map(AppendHeaders), r#"{"received_nanos":0,"sent_nanos":0}"#)
}
