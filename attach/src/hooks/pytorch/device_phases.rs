//! The phases of a device: the forward pass, the backward pass and the update, by CUDA events on the stream that computes
//! them.
//!
//! The host enqueues the work of a phase long before the device does it. Python therefore calls these functions where the
//! host enters and leaves a phase, and the device's own times are read later ([`events`]).

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call_log::Phase;
use crate::hooks::events::{self, RecordedBegin, Work};
use crate::host;
use crate::observer;

/// The largest number of phases that Python distinguishes. Each module has three, and each process one update.
const MAX_PHASES: usize = 1_024;

/// The events that began the phases, by the phases' numbers.
static BEGUN: Mutex<Vec<Option<RecordedBegin>>> = Mutex::new(Vec::new());

fn begun() -> MutexGuard<'static, Vec<Option<RecordedBegin>>> {
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a number for a phase of a device, or a negative value if there are too many.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_device_phase() -> i64 {
    host::guarded(|| {
        let mut begun = begun();
        if begun.len() == MAX_PHASES {
            return Some(-1);
        }
        begun.push(None);
        Some(begun.len() as i64 - 1)
    })
    .unwrap_or(-1)
}

/// Records that the device begins a phase after all work that `stream` has. A phase that was begun and not ended, because
/// an exception left it, is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_device_begins(number: i64, stream: usize) {
    host::guarded(|| {
        if !observer::is_observed() {
            return;
        }
        events::read_by_observer();
        let begin = events::record_begin(ptr::with_exposed_provenance_mut(stream));
        keep(number, begin);
    });
}

/// Records that the device ends a phase after all work that `stream` has, if the phase was begun. `phase` is the code of a
/// [`Phase`].
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_device_ends(number: i64, phase: u8, stream: usize) {
    host::guarded(|| {
        let begin = take(number);
        match (begin, Phase::from_code(phase)) {
            (Some(begin), Some(phase)) => {
                begin.end(ptr::with_exposed_provenance_mut(stream), Work::Phase(phase));
            }
            (Some(begin), None) => begin.forget(),
            (None, _) => {}
        }
    });
}

/// Returns whether a phase was begun and not ended.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_device_is_begun(number: i64) -> bool {
    host::guarded(|| place(&mut begun(), number).is_some_and(|begun| begun.is_some()))
}

fn place(begun: &mut [Option<RecordedBegin>], number: i64) -> Option<&mut Option<RecordedBegin>> {
    begun.get_mut(usize::try_from(number).ok()?)
}

fn keep(number: i64, begin: Option<RecordedBegin>) {
    let replaced = match place(&mut begun(), number) {
        Some(begun) => std::mem::replace(begun, begin),
        None => begin,
    };
    if let Some(replaced) = replaced {
        replaced.forget();
    }
}

fn take(number: i64) -> Option<RecordedBegin> {
    place(&mut begun(), number)?.take()
}
