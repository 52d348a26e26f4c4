//! The functions that NVTX calls. Each object with NVTX in it calls one of two entry points, which give it this
//! library's functions to call for its ranges.
//!
//! Layouts and numbers are those of nvtxTypes.h, nvtxExtTypes.h and nvToolsExt.h (NVTX 3).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::payload::{self, PayloadFields, PayloadPart, Schema};
use super::ranges::{self, Domain};
use super::words::Meaning;
use crate::{host, sampling};

/// `NVTX_ETID_CALLBACKS`
const CALLBACKS: u32 = 1;
/// `NVTX_CB_MODULE_CORE` and `NVTX_CB_MODULE_CORE2`
const CORE: c_uint = 1;
const CORE2: c_uint = 5;
/// `NVTX_EXT_PAYLOAD_MODULEID`
const PAYLOAD_MODULE: u16 = 2;
/// `NVTX_EXT_PAYLOAD_COMPATID` without its minor part.
const PAYLOAD_COMPATIBLE: u16 = 1;
/// `NVTX_MESSAGE_TYPE_ASCII` and `NVTX_MESSAGE_TYPE_REGISTERED`
const ASCII: i32 = 1;
const REGISTERED: i32 = 3;
/// The largest number of registered strings. The meaning of later ones is not stored.
const MAX_STRINGS: usize = 16_384;
/// `NVTX_NO_PUSH_POP_TRACKING`: ranges are not tracked, as in a forked child.
const NO_PUSH: c_int = -2;

/// Returns the constants of NVTX's headers that this hook relies on, by their names there, for comparison with the
/// headers. No package contains the headers of extensions, so only a real NCCL tests those.
#[doc(hidden)]
#[must_use]
pub fn assumptions() -> Vec<(&'static str, u64)> {
    vec![
        ("NVTX_ETID_CALLBACKS", u64::from(CALLBACKS)),
        ("NVTX_CB_MODULE_CORE", u64::from(CORE)),
        ("NVTX_CB_MODULE_CORE2", u64::from(CORE2)),
        ("NVTX_CBID_CORE_RangePushEx", number::PUSH as u64),
        ("NVTX_CBID_CORE_RangePushA", number::PUSH_ASCII as u64),
        ("NVTX_CBID_CORE_RangePop", number::POP as u64),
        ("NVTX_CBID_CORE2_DomainRangePushEx", number::DOMAIN_PUSH as u64),
        ("NVTX_CBID_CORE2_DomainRangePop", number::DOMAIN_POP as u64),
        ("NVTX_CBID_CORE2_DomainRegisterStringA", number::REGISTER_STRING as u64),
        ("NVTX_CBID_CORE2_DomainCreateA", number::DOMAIN_CREATE as u64),
        ("NVTX_MESSAGE_TYPE_ASCII", ASCII as u64),
        ("NVTX_MESSAGE_TYPE_REGISTERED", REGISTERED as u64),
        ("(unsigned)NVTX_NO_PUSH_POP_TRACKING", u64::from(NO_PUSH.cast_unsigned())),
        ("sizeof(nvtxEventAttributes_t)", size_of::<Attributes>() as u64),
        ("offsetof(nvtxEventAttributes_t, size)", offset_of!(Attributes, size) as u64),
        ("offsetof(nvtxEventAttributes_t, payloadType)", offset_of!(Attributes, payload_type) as u64),
        ("offsetof(nvtxEventAttributes_t, reserved0)", offset_of!(Attributes, parts) as u64),
        ("offsetof(nvtxEventAttributes_t, payload)", offset_of!(Attributes, payload) as u64),
        ("offsetof(nvtxEventAttributes_t, messageType)", offset_of!(Attributes, message_type) as u64),
        ("offsetof(nvtxEventAttributes_t, message)", offset_of!(Attributes, message) as u64),
    ]
}

/// The indices of functions in the tables of [`CORE`] and [`CORE2`].
mod number {
    pub(super) const PUSH: usize = 8;
    pub(super) const PUSH_ASCII: usize = 9;
    pub(super) const POP: usize = 11;
    pub(super) const DOMAIN_PUSH: usize = 4;
    pub(super) const DOMAIN_POP: usize = 5;
    pub(super) const REGISTER_STRING: usize = 10;
    pub(super) const DOMAIN_CREATE: usize = 12;
}

/// A function of any type.
type Any = *const c_void;
type Export = unsafe extern "C" fn(u32) -> *const c_void;

/// `NvtxExportTableCallbacks`
#[repr(C)]
struct CallbackTables {
    bytes: usize,
    table: unsafe extern "C" fn(c_uint, *mut *mut *mut Any, *mut c_uint) -> c_int,
}

/// `nvtxEventAttributes_t`
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    /// The number of parts of an extended payload.
    parts: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

/// `nvtxExtModuleSegment_t`
#[repr(C)]
struct Segment {
    id: usize,
    slots: usize,
    functions: *mut Any,
}

/// `nvtxExtModuleInfo_t`
#[repr(C)]
struct Module {
    version: u16,
    bytes: u16,
    id: u16,
    compatible: u16,
    segment_count: usize,
    segments: *mut Segment,
    export: Any,
    info: Any,
}

/// Writes this library's functions into the tables of an object. NVTX calls this once per object that contains it.
/// Returns 1 on success.
///
/// # Safety
/// Only NVTX may call this.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the symbol that NVTX looks for")]
pub unsafe extern "C" fn InitializeInjectionNvtx2(export: Export) -> c_int {
    // SAFETY: NVTX passes its export function, whose table has the layout that its size announces.
    let taken = host::guarded(|| unsafe {
        let tables = export(CALLBACKS).cast::<CallbackTables>();
        if tables.is_null() || (*tables).bytes < size_of::<CallbackTables>() {
            return false;
        }
        let core: [(usize, Any); 3] =
            [(number::PUSH, push as Any), (number::PUSH_ASCII, push_ascii as Any), (number::POP, pop as Any)];
        let core2: [(usize, Any); 4] = [
            (number::DOMAIN_PUSH, domain_push as Any),
            (number::DOMAIN_POP, domain_pop as Any),
            (number::REGISTER_STRING, domain_register_string as Any),
            (number::DOMAIN_CREATE, domain_create as Any),
        ];
        attach(&*tables, CORE, &core) && attach(&*tables, CORE2, &core2)
    });
    c_int::from(taken)
}

/// Writes functions into the table of a module.
///
/// # Safety
/// `tables` must be NVTX's, and each function must have the type that its index requires.
unsafe fn attach(tables: &CallbackTables, module: c_uint, functions: &[(usize, Any)]) -> bool {
    let (mut places, mut count) = (ptr::null_mut(), 0);
    // SAFETY: the caller guarantees NVTX's table function, which writes two values.
    if unsafe { (tables.table)(module, &raw mut places, &raw mut count) } == 0 || places.is_null() {
        return false;
    }
    for &(at, function) in functions.iter().filter(|(at, _)| *at < count as usize) {
        // SAFETY: the module has `count` places, and `at` is less. A place is null if its index has no function.
        unsafe {
            let place = places.add(at).read();
            if !place.is_null() {
                place.write(function);
            }
        }
    }
    true
}

/// Writes this library's functions into the table of an extension. Returns 1 on success.
///
/// # Safety
/// Only NVTX may call this.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the symbol that NVTX looks for")]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(module: *mut c_void) -> c_int {
    // SAFETY: NVTX passes its module, whose first segment has `slots` places.
    let taken = host::guarded(|| unsafe {
        let Some(module) = module.cast::<Module>().as_ref() else { return false };
        let is_known = module.id == PAYLOAD_MODULE && module.compatible >> 8 == PAYLOAD_COMPATIBLE;
        if !is_known || module.segment_count == 0 || module.segments.is_null() {
            return false;
        }
        let segment = &*module.segments;
        for (at, function) in [(0, schema_register as Any), (4, pop_payload as Any)] {
            if at < segment.slots {
                segment.functions.add(at).write(function);
            }
        }
        true
    });
    c_int::from(taken)
}

fn handle(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

unsafe extern "C" fn domain_create(name: *const c_char) -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(Domain::NCCL.0 + 1);
    // SAFETY: a name is null or a C string.
    let is_nccl = !name.is_null() && unsafe { CStr::from_ptr(name) } == c"NCCL";
    handle(if is_nccl { Domain::NCCL.0 } else { NEXT.fetch_add(1, Ordering::Relaxed) })
}

/// The codes of the meanings of registered strings, by handle minus one.
static STRINGS: [AtomicU8; MAX_STRINGS] = [const { AtomicU8::new(0) }; MAX_STRINGS];

unsafe extern "C" fn domain_register_string(domain: *mut c_void, text: *const c_char) -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    host::guarded(|| {
        // SAFETY: NVTX passes null or a C string.
        let meaning = unsafe { meaning(Domain(domain.addr()), text) };
        let at = NEXT.fetch_add(1, Ordering::Relaxed);
        if let Some(string) = STRINGS.get(at) {
            string.store(meaning.code(), Ordering::Release);
        }
        Some(handle(at + 1))
    })
    .unwrap_or(ptr::null_mut())
}

/// Returns the meaning of a range's name in a domain.
///
/// # Safety
/// `text` must be null or a C string.
unsafe fn meaning(domain: Domain, text: *const c_char) -> Meaning {
    if text.is_null() {
        return Meaning::Nothing;
    }
    // SAFETY: `text` is not null, so the caller guarantees a C string.
    let name = unsafe { CStr::from_ptr(text) }.to_bytes();
    if domain == Domain::NCCL { Meaning::from_nccl(name) } else { Meaning::from_job(name) }
}

/// Runs the work of a hook. The work never fails the caller.
fn received<T: Default>(work: impl FnOnce() -> T) -> T {
    host::guarded(|| sampling::timed(work))
}

/// Opens a range with attributes. Returns the number of ranges that were open before.
///
/// # Safety
/// `attributes` must be null or a range's attributes.
unsafe fn begin(domain: Domain, attributes: *const c_void) -> c_int {
    let depth = received(|| {
        // SAFETY: the caller guarantees a range's attributes. Newer versions add fields only after these.
        let attributes = unsafe { attributes.cast::<Attributes>().as_ref() };
        let attributes = attributes.filter(|given| usize::from(given.size) >= size_of::<Attributes>());
        let Some(given) = attributes else {
            return ranges::push(domain, Meaning::Nothing, PayloadFields::default());
        };
        let meaning = match given.message_type {
            // SAFETY: a message of this type is null or a C string.
            ASCII => unsafe { meaning(domain, given.message.cast()) },
            REGISTERED => {
                let string = given.message.addr().checked_sub(1).and_then(|at| STRINGS.get(at));
                string.map_or(Meaning::Nothing, |string| Meaning::from_code(string.load(Ordering::Acquire)))
            }
            _ => Meaning::Nothing,
        };
        let is_extended = domain == Domain::NCCL && given.payload_type == payload::TYPE_EXTENDED;
        let said = if is_extended && given.payload != 0 {
            let parts = ptr::with_exposed_provenance::<PayloadPart>(given.payload as usize);
            // SAFETY: the payload of this type is an array of `parts` parts.
            unsafe { payload::read(parts, given.parts.max(0) as usize) }
        } else {
            PayloadFields::default()
        };
        ranges::communicator(said);
        ranges::push(domain, meaning, said)
    });
    depth as c_int
}

unsafe extern "C" fn push(attributes: *const c_void) -> c_int {
    // SAFETY: NVTX passes a range's attributes.
    unsafe { begin(Domain::DEFAULT, attributes) }
}

unsafe extern "C" fn push_ascii(text: *const c_char) -> c_int {
    received(|| {
        // SAFETY: NVTX passes null or a C string.
        let meaning = unsafe { meaning(Domain::DEFAULT, text) };
        ranges::push(Domain::DEFAULT, meaning, PayloadFields::default())
    }) as c_int
}

unsafe extern "C" fn pop() -> c_int {
    end(Domain::DEFAULT)
}

unsafe extern "C" fn domain_push(domain: *mut c_void, attributes: *const c_void) -> c_int {
    // SAFETY: NVTX passes a range's attributes.
    unsafe { begin(Domain(domain.addr()), attributes) }
}

unsafe extern "C" fn domain_pop(domain: *mut c_void) -> c_int {
    end(Domain(domain.addr()))
}

fn end(domain: Domain) -> c_int {
    received(|| Some(ranges::pop(domain))).map_or(NO_PUSH, |depth| depth as c_int)
}

unsafe extern "C" fn schema_register(_domain: *mut c_void, schema: *const c_void) -> u64 {
    // SAFETY: NVTX passes a schema.
    host::guarded(|| unsafe { payload::register(schema.cast::<Schema>()) })
}

/// Closes a range whose payload comes with its end: NCCL knows a communicator's number only once it is created.
unsafe extern "C" fn pop_payload(domain: *mut c_void, parts: *const c_void, count: usize) -> c_int {
    let domain = Domain(domain.addr());
    host::guarded(|| {
        if domain == Domain::NCCL && !parts.is_null() {
            // SAFETY: NVTX passes `count` parts.
            ranges::communicator(unsafe { payload::read(parts.cast::<PayloadPart>(), count) });
        }
    });
    end(domain)
}
