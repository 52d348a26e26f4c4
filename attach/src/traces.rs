//! Traces of a few steps by PyTorch's profiler, on request of the server.
//!
//! Only Python can start the profiler, and only the thread that trains can do so for its own work. So a thread of this
//! library offers the request, the Python package (`paceline/_trace.py`) takes it up between two steps, and the thread sends
//! what becomes of it to the server.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent::{Notes, Traced, Uploads};
use wire::ids::Step;
use wire::request::TraceRequest;

use crate::{marks, sampling};

/// The time between two looks at what the server or Python wants.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The longest time from one update of parameters to the next while a trace is awaited.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// The longest time from the last step of a trace until Python has written it.
const WRITE_LIMIT: Duration = Duration::from_secs(300);
/// The longest time that the end of the process waits for an upload.
const EXIT_LIMIT: Duration = Duration::from_secs(1);

/// The number of the request that Python is to take up; 0 if there is none.
static NUMBER: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicU64 = AtomicU64::new(0);
static STEPS: AtomicU32 = AtomicU32::new(0);
/// Whether Python has recorded the steps and writes them.
static IS_RECORDED: AtomicBool = AtomicBool::new(false);
/// Python's newest answer, with the number of its request.
static ANSWER: Mutex<Option<(u64, Answer)>> = Mutex::new(None);

/// A trace and its compressed file, or the reason why there is none.
type Answer = Result<(Traced, File), String>;

/// Returns the request that Python is to take up. It does not wait for a lock.
pub(crate) fn asked() -> Option<TraceRequest> {
    let number = NUMBER.load(Ordering::Acquire);
    let (first, steps) = (FIRST.load(Ordering::Relaxed), STEPS.load(Ordering::Relaxed));
    (number != 0).then_some(TraceRequest { number, first: Step(first), steps: steps as u8 })
}

/// Records that Python has recorded the steps of a request.
pub(crate) fn recorded(number: u64) {
    IS_RECORDED.store(NUMBER.load(Ordering::Relaxed) == number, Ordering::Relaxed);
}

/// Records Python's answer to a request.
pub(crate) fn answered(number: u64, answer: Answer) {
    *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, answer));
}

/// The thread that answers requests. Dropping the value ends it. An upload in progress is given up.
pub struct OnDemand {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts the thread that answers requests.
pub fn answer_requests(notes: Notes, uploads: Uploads) -> OnDemand {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let work = move || {
        let (stops, mut done) = (|| asked.load(Ordering::Relaxed), 0);
        while !stops() {
            if let Some(request) = notes.trace_asked(done) {
                done = request.number;
                answer(request, &uploads, &stops);
            }
            thread::park_timeout(LOOK_EVERY);
        }
    };
    OnDemand { stop, thread: thread::Builder::new().name("paceline-traces".into()).spawn(work).ok() }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        let deadline = Instant::now() + EXIT_LIMIT;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(5));
        }
    }
}

fn answer(request: TraceRequest, uploads: &Uploads, stops: &impl Fn() -> bool) {
    let sent = offer(request, stops).and_then(|(traced, mut file)| {
        uploads
            .trace(request, traced, &mut file, stops)
            .map_err(|reason| format!("the trace was not accepted: {reason}"))
    });
    if let Err(reason) = sent {
        // If the server cannot be told, it says that the rank has not answered.
        let _untold = uploads.no_trace(request, &reason, stops);
    }
}

/// Offers a request to Python and waits for its answer.
fn offer(request: TraceRequest, stops: impl Fn() -> bool) -> Answer {
    if marks::updates() == 0 {
        return Err(
            "PyTorch has reported no update of parameters in this process, so its steps are not known".into(),
        );
    }
    if !sampling::updates_are_steps() {
        return Err(
            "the steps of this job are not its updates of parameters, so they cannot be told apart while it \
                    trains"
                .into(),
        );
    }
    request_answer(request, stops)
}

fn request_answer(request: TraceRequest, stops: impl Fn() -> bool) -> Answer {
    FIRST.store(request.first.0, Ordering::Relaxed);
    STEPS.store(request.steps.into(), Ordering::Relaxed);
    IS_RECORDED.store(false, Ordering::Relaxed);
    NUMBER.store(request.number, Ordering::Release);
    let answer = wait(request.number, stops);
    NUMBER.store(0, Ordering::Release);
    answer
}

fn wait(number: u64, stops: impl Fn() -> bool) -> Answer {
    let (mut updates, mut since) = (marks::updates(), Instant::now());
    loop {
        let newest = ANSWER.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((_, answer)) = newest.filter(|(answered, _)| *answered == number) {
            return answer;
        }
        if stops() {
            return Err("the process ended before the steps were recorded".into());
        }
        let is_recorded = IS_RECORDED.load(Ordering::Relaxed);
        let limit = if is_recorded { WRITE_LIMIT } else { STEP_LIMIT };
        if since.elapsed() > limit {
            return Err(format!(
                "{} within {} s",
                if is_recorded { "the trace was not written" } else { "no step ended" },
                limit.as_secs()
            ));
        }
        let now = marks::updates();
        if now != updates && !is_recorded {
            (updates, since) = (now, Instant::now());
        }
        thread::park_timeout(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test that offers a request.
    #[test]
    fn a_request_is_offered_until_it_is_answered() {
        let request = TraceRequest { number: 5, first: Step(9), steps: 3 };
        assert!(request_answer(request, || true).unwrap_err().contains("the process ended"));
        assert_eq!(asked(), None);
        thread::scope(|scope| {
            let answering = scope.spawn(|| {
                while asked().is_none() {
                    thread::yield_now();
                }
                answered(4, Err("of another request".into()));
                answered(5, Err("busy".into()));
                asked()
            });
            assert_eq!(request_answer(request, || false).unwrap_err(), "busy");
            assert_eq!((answering.join().unwrap(), asked()), (Some(request), None));
        });
    }
}
