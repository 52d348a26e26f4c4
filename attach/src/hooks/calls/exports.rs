//! Functions with NCCL's names and types (nccl.h), which observe a call and pass it to NCCL.

use std::ffi::{c_int, c_void};
use std::hash::Hasher as _;
use std::ptr;
use std::sync::OnceLock;

use fnv::FnvHasher;
use gpu::nccl::UniqueId;

use super::originals::found;
use super::{Call, What, group, made, number_of_split};
use crate::call_log::Function;

/// `ncclInternalError`, returned if no object of the process contains NCCL's function.
pub(super) const NO_NCCL: c_int = 3;

/// Returns the number of a communicator, the same on all ranks that join with this id.
fn number_named(id: &UniqueId) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(&id.0);
    hasher.finish()
}

/// The address of a function.
pub(super) struct Address(pub(super) *const c_void);
// SAFETY: the address of a function is valid on all threads.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Declares a function that is called in place of NCCL's function of the same name. `$body` calls NCCL's as
/// `$original`.
macro_rules! before {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) |$original:ident| $body:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The caller must uphold the contract of this function in nccl.h.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "NCCL's name")]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            static FOUND: OnceLock<Option<Address>> = OnceLock::new();
            let find = || found(stringify!($name), concat!("p", stringify!($name))).map(Address);
            let Some(Address(address)) = FOUND.get_or_init(find) else { return NO_NCCL };
            type Original = unsafe extern "C" fn($($type),*) -> c_int;
            // SAFETY: NCCL's function of this name has this type.
            let function = unsafe { std::mem::transmute::<*const c_void, Original>(*address) };
            let $original = function;
            $body
        }
    };
}

before! {
    /// Observes `ncclAllReduce`.
    fn ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int, op: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::AllReduce), count, datatype, communicator: comm, stream };
        // SAFETY: the caller's arguments, passed on unchanged.
        call.run(|| unsafe { original(from, to, count, datatype, op, comm, stream) })
    }
}

before! {
    /// Observes `ncclBroadcast`.
    fn ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int, root: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::Broadcast), count, datatype, communicator: comm, stream };
        // SAFETY: the caller's arguments, passed on unchanged.
        call.run(|| unsafe { original(from, to, count, datatype, root, comm, stream) })
    }
}

before! {
    /// Observes `ncclReduce`.
    fn ncclReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::Reduce), count, datatype, communicator: comm, stream };
        // SAFETY: the caller's arguments, passed on unchanged.
        call.run(|| unsafe { original(from, to, count, datatype, op, root, comm, stream) })
    }
}

before! {
    /// Observes `ncclAllGather`.
    fn ncclAllGather(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::AllGather), count, datatype, communicator: comm, stream };
        // SAFETY: the caller's arguments, passed on unchanged.
        call.run(|| unsafe { original(from, to, count, datatype, comm, stream) })
    }
}

before! {
    /// Observes `ncclReduceScatter`.
    fn ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int, op: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::ReduceScatter), count, datatype, communicator: comm, stream };
        // SAFETY: the caller's arguments, passed on unchanged.
        call.run(|| unsafe { original(from, to, count, datatype, op, comm, stream) })
    }
}

before! {
    /// Observes `ncclSend`.
    fn ncclSend(
        from: *const c_void, count: usize, datatype: c_int, peer: c_int, comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let what = What::Message { peer, is_sent: true };
        let call = Call { what, count, datatype, communicator: comm, stream };
        // SAFETY: the caller's arguments, passed on unchanged.
        call.run(|| unsafe { original(from, count, datatype, peer, comm, stream) })
    }
}

before! {
    /// Observes `ncclRecv`.
    fn ncclRecv(
        to: *mut c_void, count: usize, datatype: c_int, peer: c_int, comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let what = What::Message { peer, is_sent: false };
        let call = Call { what, count, datatype, communicator: comm, stream };
        // SAFETY: the caller's arguments, passed on unchanged.
        call.run(|| unsafe { original(to, count, datatype, peer, comm, stream) })
    }
}

before! {
    /// Observes `ncclGroupStart`.
    fn ncclGroupStart() |original| {
        group::start();
        // SAFETY: the function takes no arguments, and the caller upholds its contract.
        unsafe { original() }
    }
}

before! {
    /// Observes `ncclGroupEnd`.
    fn ncclGroupEnd() |original| {
        // SAFETY: the function takes no arguments, and the caller upholds its contract.
        group::end(|| unsafe { original() })
    }
}

/// Reads the communicator that NCCL wrote to `place`; null if there is none.
///
/// # Safety
/// `place` must be null or valid for reads.
unsafe fn written(place: *mut *mut c_void) -> *mut c_void {
    // SAFETY: the caller guarantees that a non-null `place` is valid for reads.
    if place.is_null() { ptr::null_mut() } else { unsafe { place.read() } }
}

before! {
    /// Observes `ncclCommInitRank`.
    fn ncclCommInitRank(place: *mut *mut c_void, size: c_int, id: UniqueId, rank: c_int) |original| {
        // SAFETY: the caller's arguments, passed on unchanged. NCCL writes the communicator to `place`.
        let (result, new) = unsafe { (original(place, size, id, rank), written(place)) };
        made(new, number_named(&id), Some(size));
        result
    }
}

before! {
    /// Observes `ncclCommInitRankConfig`.
    fn ncclCommInitRankConfig(
        place: *mut *mut c_void, size: c_int, id: UniqueId, rank: c_int, config: *mut c_void
    ) |original| {
        // SAFETY: the caller's arguments, passed on unchanged. NCCL writes the communicator to `place`.
        let (result, new) = unsafe { (original(place, size, id, rank, config), written(place)) };
        made(new, number_named(&id), Some(size));
        result
    }
}

before! {
    /// Observes `ncclCommSplit`.
    fn ncclCommSplit(
        parent: *mut c_void, color: c_int, key: c_int, place: *mut *mut c_void, config: *mut c_void
    ) |original| {
        let number = number_of_split(parent, color);
        // SAFETY: the caller's arguments, passed on unchanged. NCCL writes the communicator to `place`.
        let (result, new) = unsafe { (original(parent, color, key, place, config), written(place)) };
        made(new, number, None);
        result
    }
}
