//! Tests of the model, the tables and the refusals. Traces have their own tests.

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::RowAccessor as _;
use wire::event::Function;
use wire::live::SliceKind;
use wire::views::RunState;

use super::*;

pub(in crate::export) fn summary() -> RunSummary {
    RunSummary {
        name: "char_lm".into(),
        state: RunState::Completed,
        ranks_expected: 2,
        most_ranks: 2,
        ranks_reporting: 2,
        steps: 1,
        last_step: Some(3),
        ..wire::fixtures::run_summary()
    }
}

/// Returns a step of two ranks with one collective. The second rank's clock has no error bound.
pub(in crate::export) fn waterfall() -> Waterfall {
    let [backward, queued, wait, transfer] =
        [SliceKind::Backward, SliceKind::Queued, SliceKind::WaitHidden, SliceKind::TransferExposed]
            .map(|kind| kind as u8);
    Waterfall {
        step: 3,
        origin_unix_nanos: 1_790_000_000_000_000_000,
        span_nanos: 100_000.0,
        only_enqueued: false,
        rank: vec![0, 1],
        clock_bound: vec![5.0, f64::NAN],
        rank_begin: vec![0.0, 1_000.0],
        rank_end: vec![100_000.0, 99_000.0],
        slice_row: vec![0, 0, 0, 0, 1],
        slice_kind: vec![backward, queued, wait, transfer, transfer],
        slice_bucket: vec![u32::MAX, 0, 0, 0, 1],
        slice_begin: vec![10_000.0, 26_000.0, 30_000.0, 31_000.0, 31_000.0],
        slice_end: vec![31_000.0, 30_000.0, 31_000.0, 60_000.0, 60_000.0],
        bucket_row: vec![0, 1],
        bucket: vec![0, 0],
        bucket_seq: vec![7, 7],
        bucket_function: vec![Function::AllReduce as u8; 2],
        bucket_comm: vec![0, 0],
        bucket_bytes: vec![4096, 4096],
        bucket_ready: vec![25_000.0, 26_000.0],
        bucket_launch: vec![26_000.0, 31_000.0],
        bucket_start: vec![30_000.0, 31_000.0],
        bucket_end: vec![60_000.0, 60_000.0],
        bucket_wait: vec![1_000.0, f64::NAN],
        bucket_wait_clock_free: vec![900.0, 0.0],
    }
}

/// Returns the step as a file in a format, with all ranks or with one rank.
pub(in crate::export) fn written(format: Format, rank: Option<u32>) -> Vec<u8> {
    let mut writer = Writer::begin(format, Vec::new(), &summary(), rank).expect("memory can be written");
    writer.step(&waterfall()).expect("memory can be written");
    writer.finish().expect("memory can be written")
}

#[test]
fn the_parts_of_a_bucket_sum_to_its_duration() {
    assert!(waterfall().is_consistent());
    let ranks = model::ranks(&waterfall(), None);
    let bucket = &ranks[0].buckets[0];
    assert_eq!((bucket.hidden, bucket.exposed, bucket.transfer), (1_000, 29_000, 29_000));
    assert_eq!(bucket.hidden + bucket.exposed, bucket.end - bucket.start);
    assert_eq!(ranks[0].parts(bucket).len(), 3);
    assert_eq!(ranks[0].training.len(), 1);
    // The step, backward, the bucket and its two parts. Time in the queue is not a slice.
    assert_eq!((ranks[0].slices(), ranks[1].slices()), (5, 3));
    assert_eq!(model::ranks(&waterfall(), Some(1))[0].rank, 1);
}

#[test]
fn a_table_has_a_header_and_one_row_per_bucket_and_unknown_values_are_empty() {
    let text = String::from_utf8(written(Format::Csv, None)).expect("CSV is text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], model::COLUMNS.join(","));
    let base = 1_790_000_000_000_000_000_i64;
    assert_eq!(
        lines[1],
        format!(
            "3,0,0,7,4096,{},{},{},{},1000,900,29000,1000,29000,5",
            base + 25_000,
            base + 26_000,
            base + 30_000,
            base + 60_000
        )
    );
    assert!(
        lines[2].starts_with("3,1,0,7,4096,") && lines[2].ends_with(",,0,29000,0,29000,"),
        "{}",
        lines[2]
    );
    assert_eq!(lines.len(), 3);
    assert_eq!(String::from_utf8(written(Format::Csv, Some(1))).expect("CSV is text").lines().count(), 2);
}

#[test]
fn parquet_has_the_same_rows_as_csv() {
    let file = bytes::Bytes::from(written(Format::Parquet, None));
    let reader = SerializedFileReader::new(file).expect("the file is Parquet");
    let text = String::from_utf8(written(Format::Csv, None)).expect("CSV is text");
    let rows = reader.get_row_iter(None).expect("the file has rows").map(|row| {
        let row = row.expect("a row can be read");
        let value = |at: usize| row.get_long(at).map_or_else(|_| String::new(), |value| value.to_string());
        (0..row.len()).map(value).collect::<Vec<_>>().join(",")
    });
    assert_eq!(rows.collect::<Vec<_>>(), text.lines().skip(1).collect::<Vec<_>>());
    let metadata = reader.metadata().file_metadata();
    let names: Vec<&str> = metadata.schema_descr().columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, model::COLUMNS);
    let key_values = metadata.key_value_metadata().expect("the file has metadata");
    assert!(key_values.iter().any(|pair| pair.key == "paceline.run" && pair.value.as_deref() == Some("r")));
}

#[test]
fn many_steps_fill_several_row_groups_without_loss() {
    let mut writer =
        Writer::begin(Format::Parquet, Vec::new(), &summary(), None).expect("memory can be written");
    for step in 0..100_000 {
        writer.step(&Waterfall { step, ..waterfall() }).expect("memory can be written");
    }
    let file = bytes::Bytes::from(writer.finish().expect("memory can be written"));
    let reader = SerializedFileReader::new(file).expect("the file is Parquet");
    assert_eq!(reader.metadata().num_row_groups(), 2);
    assert_eq!(reader.metadata().file_metadata().num_rows(), 200_000);
}

#[test]
fn a_range_is_two_ascending_numbers_and_the_newest_steps_by_default() {
    let newest = |last_step| RunSummary { last_step, ..summary() };
    assert_eq!(range(Some("3..9"), &summary()), Ok((Step(3), Step(9))));
    assert_eq!(range(None, &newest(Some(120))), Ok((Step(71), Step(120))));
    assert_eq!(range(None, &newest(Some(3))), Ok((Step(0), Step(3))));
    for bad in ["", "3", "9..3", "a..b", "1...2"] {
        assert_eq!(range(Some(bad), &summary()), Err(Refusal::Steps(bad.into())));
    }
    assert_eq!(range(None, &newest(None)), Err(Refusal::NoSteps("r".into())));
}

#[test]
fn the_error_for_an_unknown_format_lists_the_formats() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
        let refusal = "pdf".parse::<Format>().expect_err("pdf is not a format").to_string();
        assert!(refusal.contains(format.name()), "{refusal}");
    }
}
