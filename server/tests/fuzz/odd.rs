//! Records with numbers that no clock and no counter produces. Batches are packed by differences, so damaged bytes
//! hardly ever decode to such numbers.

use wire::batch::Batch;
use wire::clock::{MonoNanos, Probe, ServerNanos};
use wire::event::Event;
use wire::ids::{Bucket, Comm, Seq, Step};

const NUMBERS: [i64; 12] = [
    i64::MIN,
    i64::MIN + 1,
    -1_000_000_000,
    -1,
    0,
    1,
    1_000_000_000,
    1 << 32,
    1 << 53,
    i64::MAX / 2,
    i64::MAX - 1,
    i64::MAX,
];

/// Sets up to seven numbers of a batch to odd values. `choice` determines which ones.
pub fn make_odd(batch: &mut Batch, choice: u64) {
    for round in 0..choice % 8 {
        let bits = choice.rotate_right(9 * round as u32 + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let number = NUMBERS[(bits >> 20) as usize % NUMBERS.len()];
        let field = (bits >> 40) % 8;
        let events = batch.events.len().max(1);
        match batch.events.get_mut((bits >> 48) as usize % events) {
            Some(event) if !bits.is_multiple_of(16) => set(event, field, number),
            _ => batch.probes.push(Probe {
                sent: MonoNanos(number),
                server_received: ServerNanos(NUMBERS[field as usize]),
                server_sent: ServerNanos(number.wrapping_neg()),
                received: MonoNanos(NUMBERS[11 - field as usize]),
            }),
        }
    }
}

fn set(event: &mut Event, field: u64, number: i64) {
    let (time, count) = (MonoNanos(number), number as u64);
    match (event, field) {
        (Event::Bucket(record), 0) => record.ready = time,
        (Event::Bucket(record), 1) => record.launch = time,
        (Event::Bucket(record), 2) => record.start = time,
        (Event::Bucket(record), 3) => record.end = time,
        (Event::Bucket(record), 4) => record.bytes = count,
        (Event::Bucket(record), 5) => record.seq = Seq(count),
        (Event::Bucket(record), 6) => record.bucket = Bucket(number as u32),
        (Event::Bucket(record), _) => record.comm = Comm(number as u32),
        (Event::Span(record), 0..4) => record.begin = time,
        (Event::Span(record), 4..6) => record.end = time,
        (Event::Span(record), _) => record.cpu_nanos = count,
        (Event::Step(record), 0..3) => record.begin = time,
        (Event::Step(record), 3..6) => record.end = time,
        (Event::Step(record), 6) => record.samples = count,
        (Event::Step(record), _) => record.step = Step(count % (1 << 32)),
        (Event::Started(record), 0..4) => record.launch = time,
        (Event::Started(record), _) => record.bytes = count,
    }
}
