//! Fuzzes schemas and payloads that no program registers, each directly before unreadable memory.
//!
//! An input is an abridged schema (the number of entries, and the type, name and offset of each), the number of parts,
//! and then the payload.

use std::ptr;

use ::fuzz::{Corpus, Verdict};

use super::*;
use crate::hooks::edge::Edge;

/// Names by number; 0 stands for a null pointer.
const TEXTS: [Option<&CStr>; 6] =
    [None, Some(NAMES[0]), Some(NAMES[1]), Some(NAMES[2]), Some(c""), Some(c"NCCL communicator ID\xff")];

/// An entry of a schema, as the input describes it.
#[derive(Clone, Copy, Debug)]
struct Field {
    kind: u64,
    text: usize,
    offset: u64,
}

/// The remaining bytes of an input, read from the front; zeros after its end.
struct Taken<'a>(&'a [u8]);

impl Taken<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}

/// Returns the fields to be read: for each name, the first entry of the right width, if it lies inside the payload.
fn expected(fields: &[Field], data: &[u8]) -> PayloadFields {
    let mut found: [Option<Vec<u8>>; 3] = [None, None, None];
    let (mut end, mut seen) = (0_u128, [false; 3]);
    for field in fields.iter().take(MAX_ENTRIES) {
        let width = u128::from(width(field.kind));
        let offset = if field.offset == 0 { end.next_multiple_of(width) } else { u128::from(field.offset) };
        end = (offset + width).min(u128::from(u64::MAX));
        let Some(name) = TEXTS[field.text].and_then(|text| NAMES.iter().position(|name| *name == text))
        else {
            continue;
        };
        let is_right = width == u128::from(WIDTHS[name]) && offset < u128::from(MAX_BYTES);
        if is_right && !std::mem::replace(&mut seen[name], true) {
            let (from, to) = (offset as usize, (offset + width) as usize);
            found[name] = data.get(from..to).map(<[u8]>::to_vec);
        }
    }
    let wide =
        |field: &Option<Vec<u8>>| Some(u64::from_le_bytes(field.as_ref()?.as_slice().try_into().ok()?));
    let ranks =
        found[2].as_ref().and_then(|field| Some(i32::from_le_bytes(field.as_slice().try_into().ok()?)));
    PayloadFields {
        communicator: wide(&found[0]),
        bytes: wide(&found[1]),
        ranks: ranks.and_then(|ranks| u32::try_from(ranks).ok()),
    }
}

fn entry(field: &Field) -> SchemaEntry {
    SchemaEntry {
        flags: 0,
        kind: field.kind,
        name: TEXTS[field.text].map_or(ptr::null(), CStr::as_ptr),
        description: ptr::null(),
        detail: 0,
        offset: field.offset,
        semantics: ptr::null(),
        reserved: ptr::null(),
    }
}

fn check(bytes: &[u8], choice: u64) -> Verdict {
    let mut input = Taken(bytes);
    let count = usize::from(input.byte()) % 24;
    let mut field = || Field {
        kind: u64::from(input.byte()),
        text: usize::from(input.byte()) % TEXTS.len(),
        offset: input.word(),
    };
    let fields: Vec<Field> = (0..count).map(|_| field()).collect();
    let entries: Vec<SchemaEntry> = fields.iter().map(entry).collect();
    let parts = usize::from(input.byte()) % 8;
    let data = Edge::new(input.0);
    // The id of a stored schema, or any number, which is not stored.
    let id = if choice.is_multiple_of(8) { choice } else { STATIC_START + choice % MAX_SCHEMAS as u64 };
    let schema = Schema {
        field_mask: 0,
        name: ptr::null(),
        kind: 0,
        flags: 0,
        entries: if entries.is_empty() { ptr::null() } else { entries.as_ptr() },
        entry_count: entries.len(),
        static_size: 0,
        alignment: 0,
        id,
        extension: ptr::null(),
    };
    if let Some(slot) = slot(id) {
        slot.store(0, Ordering::Release);
    }
    // SAFETY: the schema has `entry_count` entries, and each part has `size` bytes of data.
    let (named, said) = unsafe {
        let named = register(&raw const schema);
        let part = || PayloadPart { schema: id, size: input.0.len(), data: data.pointer() };
        let parts: Vec<PayloadPart> = (0..parts).map(|_| part()).collect();
        (named, read(parts.as_ptr(), parts.len()))
    };
    let is_remembered = slot(id).is_some() && parts > 0;
    let wanted = if is_remembered { expected(&fields, input.0) } else { PayloadFields::default() };
    if named != id {
        return Err(format!("schema {id} is registered as {named}"));
    }
    if said == wanted { Ok(()) } else { Err(format!("read {said:?} instead of {wanted:?}: {fields:?}")) }
}

#[test]
fn any_payload_is_read_by_its_schema_and_within_its_bounds() {
    let corpus = Corpus::folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/nvtx"));
    corpus.check("nvtx", 30_000, check);
}
