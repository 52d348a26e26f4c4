//! Fuzz targets for batches, as plain bytes (where mutations reach every field) and as frames.

use std::cell::Cell;

use fuzz::{Corpus, Verdict};
use paceline_wire::batch::{Batch, MAX_EVENTS, MAX_PLAIN_BYTES, MAX_RANKS, MAX_WIRE_BYTES};
use paceline_wire::codec::{DecodeError, MAX_DECODING_BYTES, decode, decode_plain, encode, encode_plain};

use super::{ensure, measured};

/// The number of columns in the four tables.
const COLUMNS: usize = 26;
const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the corpus of plain bytes. It includes the golden bytes, which have every kind of record and note.
fn plain() -> Corpus {
    Corpus::folder(format!("{FOLDER}/tests/corpus/plain"))
        .and(Corpus::files(format!("{FOLDER}/src/codec"), ".hex"))
}

fn frames() -> Corpus {
    Corpus::folder(format!("{FOLDER}/tests/corpus/frames"))
}

/// Wraps plain bytes in a frame, as an agent does.
fn framed(plain: &[u8], is_compressed: bool) -> Vec<u8> {
    let mut frame = b"PCLB\x01\0".to_vec();
    frame.extend_from_slice(&u16::from(!is_compressed).to_le_bytes());
    frame.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    if is_compressed {
        frame.extend(zstd::bulk::compress(plain, 1).expect("it compresses"));
    } else {
        frame.extend_from_slice(plain);
    }
    frame
}

/// Checks that the error is a sentence that fits a line of a log, however long the input is.
fn is_said(error: &DecodeError) -> Verdict {
    let sentence = error.to_string();
    ensure((10..1_200).contains(&sentence.len()), || format!("the error is {sentence:?}"))
}

fn check_bounds(batch: &Batch, bytes: usize) -> Verdict {
    ensure(batch.events.len() <= MAX_EVENTS, || format!("{} records", batch.events.len()))?;
    ensure(batch.rank.0 < batch.world_size && batch.world_size <= MAX_RANKS, || "rank out of range".into())?;
    ensure(batch.held_bytes() <= MAX_DECODING_BYTES, || format!("batch of {} bytes", batch.held_bytes()))?;
    let again = encode_plain(batch);
    // The encoder minimizes bits, not bytes. A column that ends in zeros may take one byte more than the shortest
    // encoding.
    ensure(again.len() <= bytes + COLUMNS, || format!("{bytes} bytes became {}", again.len()))?;
    ensure(decode_plain(&again).as_ref() == Ok(batch), || "the batch does not round-trip".into())
}

#[test]
fn plain_bytes() {
    let taken = Cell::new(0);
    plain().check("wire-plain", 30_000, |bytes, choice| {
        let (decoded, held) = measured(|| decode_plain(bytes));
        ensure(held + bytes.len() <= MAX_DECODING_BYTES, || format!("decoding held {held} bytes"))?;
        match &decoded {
            Ok(batch) => {
                taken.set(taken.get() + 1);
                check_bounds(batch, bytes.len())?;
            }
            Err(error) => is_said(error)?,
        }
        // The same bytes in a frame, stored or compressed, must decode alike.
        let frame = framed(bytes, choice.is_multiple_of(2));
        match decode(&frame) {
            Err(DecodeError::TooLarge { what: "frame length", .. }) if frame.len() > MAX_WIRE_BYTES => Ok(()),
            in_frame => ensure(in_frame == decoded, || format!("in a frame they decode as {in_frame:?}")),
        }
    });
    assert!(taken.get() > 2_000, "only {} inputs are batches, too few to test much", taken.get());
}

#[test]
fn whole_frames() {
    let stored = plain().map(|plain| framed(plain, false));
    let compressed = plain().map(|plain| framed(plain, true));
    frames().and(stored).and(compressed).check("wire-frame", 12_000, |bytes, choice| {
        let mut bytes = bytes.to_vec();
        // The length is made right in half of the cases. Otherwise mutations would seldom reach the payload.
        let length = bytes.len().checked_sub(12).filter(|_| bytes[6] == 1 && choice.is_multiple_of(2));
        if let Some(length) = length {
            bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        }
        let (decoded, held) = measured(|| decode(&bytes));
        ensure(held <= MAX_DECODING_BYTES, || format!("decoding held {held} bytes"))?;
        match decoded {
            Ok(batch) => {
                check_bounds(&batch, MAX_PLAIN_BYTES)?;
                let again = encode(&batch).map_err(|error| error.to_string())?;
                ensure(decode(&again) == Ok(batch), || "the batch does not round-trip in a frame".into())
            }
            Err(error) => is_said(&error),
        }
    });
}

/// Regressions: the decoder once misread these inputs, or used too much memory for them.
#[test]
fn inputs_that_no_encoder_writes_are_refused() {
    let refused =
        ["rows_in_every_table", "column_that_wraps", "no_flag", "bye_that_is_neither", "figure_twice"];
    for (name, bytes) in plain().entries() {
        let is_refused = refused.iter().any(|refused| name.starts_with(refused));
        assert_eq!(decode_plain(bytes).is_err(), is_refused, "{name}: {:?}", decode_plain(bytes));
    }
    for (name, bytes) in frames().entries() {
        let is_good = ["a_long_layout", "stored"].iter().any(|good| name.starts_with(good));
        let (decoded, held) = measured(|| decode(bytes));
        assert_eq!(decoded.is_ok(), is_good, "{name}: {decoded:?}");
        assert!(held <= MAX_DECODING_BYTES, "{name} held {held} bytes");
    }
}

/// The limit is close to what decoding needs: a batch with the largest number of records takes most of it.
#[test]
fn the_memory_limit_suffices_and_is_nearly_reached() {
    let most = plain();
    let (_, bytes) = most.entries().find(|(name, _)| name.starts_with("most_rows")).expect("it exists");
    let (decoded, held) = measured(|| decode_plain(bytes));
    assert_eq!(decoded.expect("it is a batch").events.len(), MAX_EVENTS);
    assert!((8 << 20..MAX_DECODING_BYTES).contains(&held), "{held}");
}
