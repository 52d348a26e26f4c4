//! Functions with NCCL's names and types (nccl.h), which call NCCL's.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use gpu::nccl::UniqueId;

use super::originals::found;
use super::{Call, What, group, made, number_of_split};
use crate::trail::Function;

/// `ncclInternalError`: no object of the process has this function.
pub(super) const NO_NCCL: c_int = 3;

/// A communicator's number: the same on all ranks that join by this id (FNV-1a).
fn number_named(id: &UniqueId) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    id.0.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

/// A function's address as a pointer to a function of its type.
pub(super) struct Address(pub(super) *const c_void);
// SAFETY: the address of a function is the same for all threads.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Declares a function before NCCL's of the same name: `$body` has NCCL's as `original`, of the same type.
macro_rules! before {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) |$original:ident| $body:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As nccl.h says.
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
    /// Before `ncclAllReduce`.
    fn ncclAllReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int, op: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::AllReduce), count, datatype, communicator: comm, stream };
        // SAFETY: the caller's arguments, as they are.
        call.run(|| unsafe { original(from, to, count, datatype, op, comm, stream) })
    }
}

before! {
    /// Before `ncclBroadcast`.
    fn ncclBroadcast(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int, root: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::Broadcast), count, datatype, communicator: comm, stream };
        // SAFETY: as above.
        call.run(|| unsafe { original(from, to, count, datatype, root, comm, stream) })
    }
}

before! {
    /// Before `ncclReduce`.
    fn ncclReduce(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::Reduce), count, datatype, communicator: comm, stream };
        // SAFETY: as above.
        call.run(|| unsafe { original(from, to, count, datatype, op, root, comm, stream) })
    }
}

before! {
    /// Before `ncclAllGather`.
    fn ncclAllGather(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::AllGather), count, datatype, communicator: comm, stream };
        // SAFETY: as above.
        call.run(|| unsafe { original(from, to, count, datatype, comm, stream) })
    }
}

before! {
    /// Before `ncclReduceScatter`.
    fn ncclReduceScatter(
        from: *const c_void, to: *mut c_void, count: usize, datatype: c_int, op: c_int,
        comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let call = Call { what: What::Collective(Function::ReduceScatter), count, datatype, communicator: comm, stream };
        // SAFETY: as above.
        call.run(|| unsafe { original(from, to, count, datatype, op, comm, stream) })
    }
}

before! {
    /// Before `ncclSend`.
    fn ncclSend(
        from: *const c_void, count: usize, datatype: c_int, peer: c_int, comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let what = What::Message { peer, is_sent: true };
        let call = Call { what, count, datatype, communicator: comm, stream };
        // SAFETY: as above.
        call.run(|| unsafe { original(from, count, datatype, peer, comm, stream) })
    }
}

before! {
    /// Before `ncclRecv`.
    fn ncclRecv(
        to: *mut c_void, count: usize, datatype: c_int, peer: c_int, comm: *mut c_void, stream: *mut c_void
    )
    |original| {
        let what = What::Message { peer, is_sent: false };
        let call = Call { what, count, datatype, communicator: comm, stream };
        // SAFETY: as above.
        call.run(|| unsafe { original(to, count, datatype, peer, comm, stream) })
    }
}

before! {
    /// Before `ncclGroupStart`.
    fn ncclGroupStart() |original| {
        group::start();
        // SAFETY: as above.
        unsafe { original() }
    }
}

before! {
    /// Before `ncclGroupEnd`.
    fn ncclGroupEnd() |original| {
        // SAFETY: as above.
        group::end(|| unsafe { original() })
    }
}

/// What was written there, if anything.
///
/// # Safety
/// `place` must be null or good to read.
unsafe fn written(place: *mut *mut c_void) -> *mut c_void {
    // SAFETY: the caller vouches for it.
    if place.is_null() { ptr::null_mut() } else { unsafe { place.read() } }
}

before! {
    /// Before `ncclCommInitRank`.
    fn ncclCommInitRank(place: *mut *mut c_void, size: c_int, id: UniqueId, rank: c_int) |original| {
        // SAFETY: as above; afterwards the communicator is where the caller wants it.
        let (result, new) = unsafe { (original(place, size, id, rank), written(place)) };
        made(new, number_named(&id), Some(size));
        result
    }
}

before! {
    /// Before `ncclCommInitRankConfig`.
    fn ncclCommInitRankConfig(
        place: *mut *mut c_void, size: c_int, id: UniqueId, rank: c_int, config: *mut c_void
    ) |original| {
        // SAFETY: as above.
        let (result, new) = unsafe { (original(place, size, id, rank, config), written(place)) };
        made(new, number_named(&id), Some(size));
        result
    }
}

before! {
    /// Before `ncclCommSplit`.
    fn ncclCommSplit(
        parent: *mut c_void, color: c_int, key: c_int, place: *mut *mut c_void, config: *mut c_void
    ) |original| {
        let number = number_of_split(parent, color);
        // SAFETY: as above.
        let (result, new) = unsafe { (original(parent, color, key, place, config), written(place)) };
        made(new, number, None);
        result
    }
}
