//! The form that carries the files of an import, and its own limits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Multipart, Request};
use hyper::body::Frame;
use tokio::time::timeout;

use crate::http::error::Failure;
use crate::http::pace::Pace;
use crate::imports::Files;
use crate::imports::arriving::{ArrivingFile, ArrivingFiles};
use crate::imports::places::Place;
use crate::printable::one_line;

/// The most that arrives of the form without a piece of a file in it, in bytes. The form's parser holds that in memory.
const MAX_OVERHEAD: usize = 4 << 20;
/// The longest name of a file that is kept, in characters.
const MAX_NAME_CHARS: usize = 200;
/// For how long the rest of a refused form is read. A client that still sends would not read the answer.
const DISCARD_WITHIN: Duration = Duration::from_secs(2);

/// The form of an import while it arrives.
pub(super) struct Upload {
    form: Multipart,
    pace: Pace,
    overhead: Arc<AtomicUsize>,
}

impl Upload {
    /// # Errors
    /// Returns an error if the request is not a form.
    pub(super) async fn new(request: Request) -> Result<Self, Failure> {
        let overhead = Arc::new(AtomicUsize::new(0));
        let mut request = request.map(|body| Body::new(Measured { body, overhead: overhead.clone() }));
        // The form has limits of its own.
        DefaultBodyLimit::apply(DefaultBodyLimit::disable(), &mut request);
        let form = Multipart::from_request(request, &()).await;
        let form = form.map_err(|error| {
            Failure::BadRequest(format!("{}: send the files as multipart/form-data", error.body_text()))
        })?;
        Ok(Self { form, pace: Pace::default(), overhead })
    }

    /// Reads all files of an import, and shows in its place how far it is.
    ///
    /// # Errors
    /// Returns an error if the form is damaged, ends early, arrives too slowly, or exceeds a limit.
    pub(super) async fn read(&mut self, place: &Place) -> Result<Files, Failure> {
        let mut files = ArrivingFiles::new(place);
        while let Some(field) = arrived(self.pace.next(self.form.next_field(), |_| 0).await?)? {
            self.overhead.store(0, Ordering::Relaxed);
            let file = files.begin(file_name(&field)?)?;
            read_file(file, field, &self.overhead, &mut self.pace).await?;
        }
        Ok(files.end())
    }

    /// Reads what still arrives, and forgets it.
    pub(super) async fn discard(&mut self) {
        let rest = async {
            while let Ok(Some(mut field)) = self.form.next_field().await {
                self.overhead.store(0, Ordering::Relaxed);
                while let Ok(Some(_)) = field.chunk().await {
                    self.overhead.store(0, Ordering::Relaxed);
                }
            }
        };
        let _in_time = timeout(DISCARD_WITHIN, rest).await;
    }
}

/// Returns the name of the file in a part of the form, without its folder.
fn file_name(field: &Field<'_>) -> Result<String, Failure> {
    let Some(path) = field.file_name() else {
        let name =
            one_line(field.name().unwrap_or_default()).chars().take(MAX_NAME_CHARS).collect::<String>();
        return Err(Failure::BadRequest(format!(
            "the part {name:?} of the form is not a file: send files only, and the name of the run as ?name="
        )));
    };
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    Ok(one_line(name).chars().take(MAX_NAME_CHARS).collect())
}

async fn read_file(
    mut file: ArrivingFile<'_, '_>,
    mut field: Field<'_>,
    overhead: &AtomicUsize,
    pace: &mut Pace,
) -> Result<(), Failure> {
    let size = |piece: &Result<Option<Bytes>, MultipartError>| match piece {
        Ok(Some(piece)) => piece.len(),
        _ => 0,
    };
    while let Some(piece) = arrived(pace.next(field.chunk(), size).await?)? {
        overhead.store(0, Ordering::Relaxed);
        file.push(piece).await?;
    }
    Ok(file.end().await?)
}

/// Returns a part of the form, or the failure that it did not arrive.
fn arrived<T>(part: Result<T, MultipartError>) -> Result<T, Failure> {
    let cut = |error: MultipartError| {
        let why = error.body_text();
        Failure::BadRequest(format!("the files did not arrive whole, and nothing is imported: {why}"))
    };
    part.map_err(cut)
}

/// A body that fails when too much of it arrives without a piece of a file. The parser of forms has no limit for that.
struct Measured {
    body: Body,
    overhead: Arc<AtomicUsize>,
}

impl hyper::body::Body for Measured {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            if self.overhead.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_OVERHEAD {
                let sentence = format!("{} KiB arrived without a file in them", MAX_OVERHEAD >> 10);
                return Poll::Ready(Some(Err(axum::Error::new(io::Error::other(sentence)))));
            }
        }
        frame
    }
}
