//! A profiler plugin, called as NCCL calls it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde_json::Value;

const GOLDEN: &str = include_str!("../../../golden/nccl_profiler.json");
/// Event types.
const GROUP: u64 = 1 << 0;
pub(crate) const COLLECTIVE: u64 = 1 << 1;
const MESSAGE: u64 = 1 << 2;
pub(crate) const KERNEL_CHANNEL: u64 = 1 << 6;
const KERNEL_CHANNEL_STOP: c_int = 22;

type InitV1 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
type InitV4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type InitV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Start = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
type Stop = unsafe extern "C" fn(*mut c_void) -> c_int;
type Record = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;

/// A loaded plugin, used through one version of its interface.
pub(crate) struct Plugin {
    library: Option<Library>,
    pub(crate) version: u32,
    layout: Value,
    table: *const c_void,
    mask: AtomicU64,
}

// SAFETY: a plugin's functions may be called from any thread, as NCCL does.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

impl Plugin {
    pub(crate) fn load(version: u32) -> anyhow::Result<Self> {
        let path = std::env::var_os("NCCL_PROFILER_PLUGIN").context("NCCL_PROFILER_PLUGIN is not set")?;
        // SAFETY: the test names the library.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
        let symbol = format!("ncclProfiler_v{version}");
        // SAFETY: the symbol is a table of functions.
        let table = unsafe { library.get::<*const c_void>(symbol.as_bytes()) }?.into_raw().cast_const();
        let golden: Value = serde_json::from_str(GOLDEN)?;
        let mut layout = golden["versions"][version.to_string()].clone();
        layout["type_bytes"] = golden["type_bytes"][version.to_string()].clone();
        Ok(Self { library: Some(library), version, layout, table, mask: AtomicU64::new(0) })
    }

    /// Returns a function by its index in the table.
    fn function<F: Copy>(&self, at: usize) -> F {
        assert_eq!(size_of::<F>(), size_of::<*const c_void>(), "a function pointer");
        // SAFETY: all versions have five functions after the name, in this order.
        unsafe { self.table.byte_add(8 * at).cast::<F>().read() }
    }

    /// Announces a new communicator. Returns the plugin's context for it.
    pub(crate) fn init(&self, number: u64, ranks: u32, rank: u32) -> anyhow::Result<usize> {
        let (ranks, rank) = (ranks as c_int, rank as c_int);
        let (mut context, mut mask) = (ptr::null_mut(), 0);
        let (context_at, mask_at) = (&raw mut context, &raw mut mask);
        // SAFETY: the signatures are those of the interface versions.
        let result = unsafe {
            match self.version {
                1..=3 => self.function::<InitV1>(1)(context_at, mask_at),
                4 => self.function::<InitV4>(1)(
                    context_at,
                    mask_at,
                    ptr::null(),
                    number,
                    1,
                    ranks,
                    rank,
                    ptr::null(),
                ),
                _ => self.function::<InitV5>(1)(
                    context_at,
                    number,
                    mask_at,
                    ptr::null(),
                    1,
                    ranks,
                    rank,
                    ptr::null(),
                ),
            }
        };
        if result != 0 || context.is_null() {
            bail!("init returned {result} and context {context:?}");
        }
        self.mask.store(mask as u64, Ordering::Relaxed);
        Ok(context.addr())
    }

    /// Returns the event types that the plugin requests.
    pub(crate) fn mask(&self) -> u64 {
        self.mask.load(Ordering::Relaxed)
    }

    /// Starts the group of operations that are launched as one kernel. NCCL reports the group if the plugin requests it
    /// or any event in it. Before 2.28, events in a group without a handle are not reported: `None`.
    pub(crate) fn start_plan(&self, context: usize) -> Option<usize> {
        let is_asked = self.mask() & (GROUP | COLLECTIVE | MESSAGE | KERNEL_CHANNEL) != 0;
        let handle = if is_asked { self.call_start(context, GROUP, &[]) } else { 0 };
        (handle != 0 || self.version >= 5).then_some(handle)
    }

    /// Starts a message. From 2.26 on, NCCL also reports messages if the plugin requests kernels.
    pub(crate) fn start_message(&self, context: usize, fields: &[(&str, u64)]) -> usize {
        let is_asked = self.mask() & MESSAGE != 0 || self.version >= 3 && self.mask() & KERNEL_CHANNEL != 0;
        if is_asked { self.call_start(context, MESSAGE, fields) } else { 0 }
    }

    /// Starts an event if the plugin requests its type. Returns the handle.
    pub(crate) fn start(&self, context: usize, kind: u64, fields: &[(&str, u64)]) -> usize {
        if self.mask() & kind == 0 { 0 } else { self.call_start(context, kind, fields) }
    }

    /// Writes the fields at the offsets of this version.
    fn call_start(&self, context: usize, kind: u64, fields: &[(&str, u64)]) -> usize {
        let bytes = self.layout["descriptor_bytes"].as_u64().expect("the layout has a size") as usize;
        let mut description = vec![0_u64; bytes.div_ceil(8)];
        let at: &mut [u8] = bytemuck::cast_slice_mut(&mut description);
        let type_bytes = self.layout["type_bytes"].as_u64().expect("the layout has a size") as usize;
        at[..type_bytes].copy_from_slice(&kind.to_le_bytes()[..type_bytes]);
        for (name, value) in fields {
            let Some(offset) = self.layout["offsets"][*name].as_u64() else { continue };
            let width = match *name {
                "coll.nChannels" | "coll.nMaxChannels" | "p2p.nChannels" | "kernelCh.channelId" => 1,
                "rank" | "p2p.peer" => 4,
                "coll.func" | "coll.datatype" if self.version == 1 => 1,
                _ => 8,
            };
            let offset = offset as usize;
            at[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        let mut handle = ptr::null_mut();
        let context = ptr::without_provenance_mut(context);
        // SAFETY: the description is laid out for this version.
        let result =
            unsafe { self.function::<Start>(2)(context, &raw mut handle, description.as_mut_ptr().cast()) };
        assert_eq!(result, 0, "startEvent");
        handle.addr()
    }

    pub(crate) fn stop(&self, handle: usize) {
        if handle != 0 {
            // SAFETY: the handle is one of this plugin's.
            let result = unsafe { self.function::<Stop>(3)(ptr::without_provenance_mut(handle)) };
            assert_eq!(result, 0, "stopEvent");
        }
    }

    /// Stops a channel of a kernel. From version 4 on, NCCL reports the GPU's time as well.
    pub(crate) fn channel_stops(&self, handle: usize, gpu: u64) {
        if handle != 0 && self.version >= 4 {
            let mut arguments = [gpu, 0];
            let (handle, at) = (ptr::without_provenance_mut(handle), arguments.as_mut_ptr().cast());
            // SAFETY: the argument of this state is the time.
            let result = unsafe { self.function::<Record>(4)(handle, KERNEL_CHANNEL_STOP, at) };
            assert_eq!(result, 0, "recordEventState");
        }
        self.stop(handle);
    }

    /// Finalizes the last communicator. NCCL then unloads the plugin, whose threads still run.
    pub(crate) fn finalize(mut self, contexts: impl IntoIterator<Item = usize>) {
        for context in contexts {
            // SAFETY: the context is this plugin's.
            let result = unsafe { self.function::<Stop>(5)(ptr::without_provenance_mut(context)) };
            assert_eq!(result, 0, "finalize");
        }
        drop(self.library.take());
    }
}
