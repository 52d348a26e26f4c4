//! Samples in columns, and their compressed form.

use std::collections::BTreeMap;
use std::sync::Arc;

use pco::standalone::{simple_compress, simple_decompress};
use wire::usage::Usage;

/// Samples in columns, oldest first. A value that a sample lacks is NaN.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Points {
    /// The times of the samples, on the server's clock, in nanoseconds.
    at: Vec<i64>,
    columns: BTreeMap<Usage, Vec<f32>>,
}

impl Points {
    pub fn len(&self) -> usize {
        self.at.len()
    }

    pub fn last(&self) -> Option<i64> {
        self.at.last().copied()
    }

    /// Adds a sample.
    pub fn push(&mut self, at: i64, values: impl Iterator<Item = (Usage, f32)>) {
        let count = self.len();
        self.at.push(at);
        for (usage, value) in values {
            let column = self.columns.entry(usage).or_default();
            column.resize(count, f32::NAN);
            column.push(value);
        }
        self.columns.values_mut().for_each(|column| column.resize(count + 1, f32::NAN));
    }

    /// Removes and returns the samples from the one at `first` on.
    pub fn split_off(&mut self, first: usize) -> Self {
        let columns = self.columns.iter_mut().map(|(usage, column)| (*usage, column.split_off(first)));
        Self { columns: columns.collect(), at: self.at.split_off(first) }
    }

    /// Returns the samples one by one: the time, and the known values.
    pub fn rows(&self) -> impl Iterator<Item = (i64, impl Iterator<Item = (Usage, f32)>)> {
        self.at.iter().enumerate().map(|(row, at)| {
            let values = self.columns.iter().map(move |(usage, column)| (*usage, column[row]));
            (*at, values.filter(|(_, value)| !value.is_nan()))
        })
    }

    /// Returns the known values of the newest sample.
    pub fn newest(&self) -> impl Iterator<Item = (Usage, f32)> {
        let newest = self.columns.iter().filter_map(|(usage, column)| Some((*usage, *column.last()?)));
        newest.filter(|(_, value)| !value.is_nan())
    }

    /// Returns one measure over time.
    pub fn column(&self, usage: Usage) -> Vec<(i64, f32)> {
        let values = self.columns.get(&usage);
        values.map_or_else(Vec::new, |values| self.at.iter().copied().zip(values.iter().copied()).collect())
    }

    pub fn bytes(&self) -> usize {
        self.at.capacity() * size_of::<i64>()
            + self.columns.values().map(|column| column.capacity() * size_of::<f32>()).sum::<usize>()
    }
}

/// Compressed samples.
#[derive(Debug)]
pub(super) struct Packed {
    /// The time of the last sample.
    pub last_at: i64,
    at: Box<[u8]>,
    columns: Box<[(Usage, Box<[u8]>)]>,
    /// The size of this in memory, in bytes. It is computed once, because each new sample needs the sum of all sizes.
    pub bytes: usize,
}

impl Packed {
    /// Compresses samples; `None` if there are none.
    pub fn new(points: &Points) -> Option<Arc<Self>> {
        let last_at = points.last()?;
        // Milliseconds are precise enough for samples of a second, and take half of the bytes.
        let millis: Vec<i64> = points.at.iter().map(|nanos| nanos / NANOS_PER_MILLI).collect();
        let pack = |(usage, values): (&Usage, &Vec<f32>)| Some((*usage, packed(values)?));
        let columns: Box<[_]> = points.columns.iter().map(pack).collect::<Option<_>>()?;
        let at = packed(&millis)?;
        let in_columns = columns.iter().map(|(_, bytes)| bytes.len() + size_of::<(Usage, Box<[u8]>)>());
        let bytes = size_of::<Self>() + at.len() + in_columns.sum::<usize>();
        Some(Arc::new(Self { last_at, at, columns, bytes }))
    }

    pub fn unpack(&self) -> Points {
        let columns = self.columns.iter().map(|(usage, bytes)| (*usage, unpacked(bytes)));
        Points { at: self.times(), columns: columns.collect() }
    }

    fn times(&self) -> Vec<i64> {
        let mut millis: Vec<i64> = unpacked(&self.at);
        millis.iter_mut().for_each(|at| *at *= NANOS_PER_MILLI);
        millis
    }

    /// Returns one measure over time.
    pub fn column(&self, usage: Usage) -> Vec<(i64, f32)> {
        let found = self.columns.iter().find(|(other, _)| *other == usage);
        found.map_or_else(Vec::new, |(_, bytes)| self.times().into_iter().zip(unpacked(bytes)).collect())
    }

    /// Returns true if some sample has the measure.
    pub fn has(&self, usage: Usage) -> bool {
        self.columns.iter().any(|(other, _)| *other == usage)
    }
}

const NANOS_PER_MILLI: i64 = 1_000_000;

fn packed<T: pco::data_types::Number>(values: &[T]) -> Option<Box<[u8]>> {
    simple_compress(values, &pco::ChunkConfig::default()).ok().map(Vec::into_boxed_slice)
}

/// Returns the values that [`packed`] compressed.
fn unpacked<T: pco::data_types::Number>(bytes: &[u8]) -> Vec<T> {
    simple_decompress(bytes).unwrap_or_default()
}
