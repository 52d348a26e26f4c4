//! Reads the payloads of NCCL's ranges by the schemas that NCCL registers for them, since field offsets differ between
//! releases.
//!
//! Layouts are those of nvToolsExtPayload.h, compatibility 1.x.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// `NVTX_PAYLOAD_TYPE_EXT`: the payload is an array of [`PayloadPart`].
pub(super) const TYPE_EXTENDED: i32 = 0xDFBD_0009_u32.cast_signed();
/// `NVTX_PAYLOAD_ENTRY_TYPE_SCHEMA_ID_STATIC_START`: the first id of schemas whose owner chooses the id.
const STATIC_START: u64 = 1 << 24;
/// The largest number of schemas. NCCL has some twenty.
const MAX_SCHEMAS: usize = 64;
/// The largest number of entries that are read from a schema.
const MAX_ENTRIES: usize = 16;
/// The offset from which on fields of a payload are not read, in bytes.
const MAX_BYTES: u64 = 1 << 12;

/// `nvtxPayloadSchemaEntry_t`
#[repr(C)]
pub(super) struct SchemaEntry {
    flags: u64,
    kind: u64,
    name: *const c_char,
    description: *const c_char,
    detail: u64,
    offset: u64,
    semantics: *const c_void,
    reserved: *const c_void,
}

/// `nvtxPayloadSchemaAttr_t`
#[repr(C)]
pub(super) struct Schema {
    field_mask: u64,
    name: *const c_char,
    kind: u64,
    flags: u64,
    entries: *const SchemaEntry,
    entry_count: usize,
    static_size: usize,
    alignment: usize,
    id: u64,
    extension: *const c_void,
}

/// `nvtxPayloadData_t`
#[repr(C)]
pub(super) struct PayloadPart {
    schema: u64,
    size: usize,
    data: *const c_void,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PayloadFields {
    /// The communicator's number, the same on all its ranks. Older releases omit it.
    pub(super) communicator: Option<u64>,
    /// The payload of this rank, in bytes.
    pub(super) bytes: Option<u64>,
    /// The number of ranks in a new communicator.
    pub(super) ranks: Option<u32>,
}

/// The names of NCCL's entries (nvtx_payload_schemas.h), in the order of [`Places`].
const NAMES: [&CStr; 3] = [c"NCCL communicator ID", c"Message size [bytes]", c"No. of ranks"];
/// The largest number of parts that are read from a payload. NCCL passes one.
const MAX_PARTS: usize = 4;
const WIDTHS: [u64; 3] = [8, 8, size_of::<c_int>() as u64];

/// The offsets of a schema's fields, 16 bits each: offset + 1, or 0 for a field that the schema lacks.
#[derive(Clone, Copy)]
struct Places(u64);

impl Places {
    fn offset(self, field: usize) -> Option<u64> {
        ((self.0 >> (16 * field)) & 0xffff).checked_sub(1)
    }

    fn with(self, field: usize, offset: u64) -> Self {
        Self(self.0 | ((offset + 1) << (16 * field)))
    }
}

static SCHEMAS: [AtomicU64; MAX_SCHEMAS] = [const { AtomicU64::new(0) }; MAX_SCHEMAS];

fn slot(id: u64) -> Option<&'static AtomicU64> {
    SCHEMAS.get(usize::try_from(id.checked_sub(STATIC_START)?).ok()?)
}

/// Stores the offsets of a schema's fields. Returns the schema's id.
///
/// # Safety
/// `schema` must point to a schema of nvToolsExtPayload.h with its entries.
pub(super) unsafe fn register(schema: *const Schema) -> u64 {
    // SAFETY: the caller guarantees a valid schema.
    let (schema, mut places, mut end) = (unsafe { &*schema }, Places(0), 0_u64);
    if schema.entries.is_null() {
        return schema.id;
    }
    for at in 0..schema.entry_count.min(MAX_ENTRIES) {
        // SAFETY: the caller guarantees `entry_count` entries.
        let entry = unsafe { &*schema.entries.add(at) };
        let width = width(entry.kind);
        // An entry without an offset follows the previous one, aligned to its own size.
        let follows = || end.checked_next_multiple_of(width).unwrap_or(u64::MAX);
        let offset = if entry.offset == 0 { follows() } else { entry.offset };
        end = offset.saturating_add(width);
        // SAFETY: the caller guarantees that a name is null or a C string.
        let name = (!entry.name.is_null()).then(|| unsafe { CStr::from_ptr(entry.name) });
        let field = NAMES.iter().position(|known| Some(*known) == name);
        // A field of an unexpected width is ignored, and so is the second field of a name.
        let is_known = |&field: &usize| width == WIDTHS[field] && places.offset(field).is_none();
        if let Some(field) = field.filter(is_known).filter(|_| offset < MAX_BYTES) {
            places = places.with(field, offset);
        }
    }
    if let Some(slot) = slot(schema.id) {
        slot.store(places.0, Ordering::Release);
    }
    schema.id
}

/// Returns the size in bytes of an entry's type, for the integers and enums that NCCL uses.
fn width(kind: u64) -> u64 {
    match kind {
        7..=10 | 17 | 18 | 22 | 23 => 8,
        1 | 2 | 11 | 12 => 1,
        3 | 4 | 13 | 14 => 2,
        _ => 4,
    }
}

/// Reads a payload.
///
/// # Safety
/// `parts` must point to `count` parts, each with `size` bytes of data.
pub(super) unsafe fn read(parts: *const PayloadPart, count: usize) -> PayloadFields {
    let mut said = PayloadFields::default();
    for at in 0..count.min(MAX_PARTS) {
        // SAFETY: the caller guarantees `count` parts.
        let part = unsafe { &*parts.add(at) };
        let Some(places) = slot(part.schema).map(|slot| Places(slot.load(Ordering::Acquire))) else {
            continue;
        };
        if part.data.is_null() {
            continue;
        }
        let inside = |field: usize| {
            places
                .offset(field)
                .filter(|offset| offset + WIDTHS[field] <= part.size as u64)
                .map(|at| at as usize)
        };
        // SAFETY: the fields lie inside the part's data, of which the caller guarantees `size` bytes.
        unsafe {
            let wide = |offset: usize| part.data.byte_add(offset).cast::<u64>().read_unaligned();
            said.communicator = inside(0).map(wide).or(said.communicator);
            said.bytes = inside(1).map(wide).or(said.bytes);
            let ranks = inside(2).map(|offset| part.data.byte_add(offset).cast::<c_int>().read_unaligned());
            said.ranks = ranks.and_then(|ranks| u32::try_from(ranks).ok()).or(said.ranks);
        }
    }
    said
}

#[cfg(test)]
mod fuzz;
