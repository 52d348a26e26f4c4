//! The rows of a table.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use wire::batch::MAX_RANKS;

/// The largest number of rows. They take at most 40 bytes each.
const MAX_ROWS: usize = 8_000_000;
/// The largest column of a part of the file, in bytes, as the file states it.
const MAX_COLUMN_BYTES: i64 = 256 << 20;
/// The columns that count.
const COLUMNS: [&str; 7] = ["rank", "dp_rank", "stage", "step", "optype", "start_ts", "duration"];
/// The column of the model chunk, which some tables lack.
const CHUNK: &str = "mc";
/// The longest time that is one of a step, in seconds.
const MAX_SECONDS: f64 = 1e6;

/// An operation of a rank. Times are in nanoseconds from the begin of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) rank: u32,
    pub(super) dp_rank: u32,
    pub(super) stage: u32,
    pub(super) step: u64,
    /// Its name, as an index of [`Table::names`].
    pub(super) name: u32,
    pub(super) start: i64,
    pub(super) end: i64,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) operations: Vec<Operation>,
    pub(super) names: Vec<String>,
    /// Whether each stage has one part of the model, so that its messages are between neighbors.
    pub(super) has_one_chunk: bool,
    numbers: HashMap<String, u32>,
}

/// Reads the table of a file. The error says what is wrong.
///
/// The library checks less of a file than it uses, and panics on some damaged ones: a panic is an error here.
pub(super) fn read(bytes: Vec<u8>) -> Result<Table, String> {
    catch_unwind(AssertUnwindSafe(|| rows(Bytes::from(bytes))))
        .unwrap_or_else(|_| Err("its pages are damaged".into()))
}

fn rows(bytes: Bytes) -> Result<Table, String> {
    let said = |error: parquet::errors::ParquetError| error.to_string();
    let reader = SerializedFileReader::new(bytes).map_err(said)?;
    let parts = reader.metadata().row_groups();
    let count = parts.iter().map(|part| part.num_rows()).fold(0_i64, i64::saturating_add);
    if usize::try_from(count).map_or(true, |count| count > MAX_ROWS) {
        return Err(format!("it has {count} rows, and at most {MAX_ROWS} are read"));
    }
    let mut columns = parts.iter().flat_map(|part| part.columns());
    if columns.any(|column| !(0..=MAX_COLUMN_BYTES).contains(&column.uncompressed_size())) {
        return Err(format!("a column of it has more than {} MiB", MAX_COLUMN_BYTES >> 20));
    }
    let wanted = projection(reader.metadata().file_metadata().schema())?;
    let mut table = Table { has_one_chunk: true, ..Table::default() };
    for row in reader.get_row_iter(Some(wanted)).map_err(said)? {
        let row = row.map_err(said)?;
        let at = table.operations.len();
        if at == MAX_ROWS {
            return Err(format!("it has more than {MAX_ROWS} rows"));
        }
        let operation =
            table.operation(&row).ok_or_else(|| format!("row {at} has an unusable value: {row}"))?;
        table.operations.push(operation);
    }
    Ok(table)
}

/// Returns the schema of the columns that count.
fn projection(schema: &Type) -> Result<Type, String> {
    let fields: Vec<Arc<Type>> = schema
        .get_fields()
        .iter()
        .filter(|field| COLUMNS.contains(&field.name()) || field.name() == CHUNK)
        .cloned()
        .collect();
    let has = |name: &&&str| fields.iter().any(|field| field.name() == **name);
    let absent: Vec<&str> = COLUMNS.iter().filter(|name| !has(name)).copied().collect();
    if !absent.is_empty() {
        return Err(format!("it has no column {}", absent.join(", ")));
    }
    Type::group_type_builder(schema.name()).with_fields(fields).build().map_err(|error| error.to_string())
}

impl Table {
    fn operation(&mut self, row: &Row) -> Option<Operation> {
        let find =
            |name: &str| row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field);
        let rank = u32::try_from(whole(find("rank")?)?).ok().filter(|&rank| rank < MAX_RANKS)?;
        self.has_one_chunk &= find(CHUNK).and_then(whole).is_none_or(|chunk| chunk <= 0);
        let dp_rank = u32::try_from(whole(find("dp_rank")?)?).ok()?;
        let stage = u32::try_from(whole(find("stage")?)?).ok()?;
        // Steps are numbered in 32 bits.
        let step = u64::from(u32::try_from(whole(find("step")?)?).ok()?);
        let start = nanos(find("start_ts")?)?;
        let end = start.checked_add(nanos(find("duration")?)?.max(0))?;
        let Field::Str(name) = find("optype")? else { return None };
        Some(Operation { rank, dp_rank, stage, step, name: self.number(name), start, end })
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

fn whole(field: &Field) -> Option<i64> {
    Some(match *field {
        Field::Byte(value) => value.into(),
        Field::Short(value) => value.into(),
        Field::Int(value) => value.into(),
        Field::Long(value) => value,
        Field::UByte(value) => value.into(),
        Field::UShort(value) => value.into(),
        Field::UInt(value) => value.into(),
        _ => return None,
    })
}

/// Converts seconds.
fn nanos(field: &Field) -> Option<i64> {
    let seconds = match *field {
        Field::Float(value) => f64::from(value),
        Field::Double(value) => value,
        _ => return None,
    };
    (seconds.abs() < MAX_SECONDS).then(|| (seconds * 1e9).round() as i64)
}
