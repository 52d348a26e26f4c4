//! The log, and the segment that the store seals from it.

use std::path::Path;
use std::time::Instant;

use paceline::store::segment::{self, Received};
use paceline_tests::stored::log;
use serde_json::{Value, json};

pub fn sizes(batching: &str, batches: &[Received], frames: &[Vec<u8>]) -> anyhow::Result<Value> {
    let run = tempfile::tempdir()?;
    let log_path = run.path().join("log-000001.plog");
    std::fs::write(&log_path, log(batches, frames))?;
    let log_bytes = log_path.metadata()?.len();
    let began = Instant::now();
    segment::seal(run.path(), &log_path)?;
    let sealed = began.elapsed().as_secs_f64();
    let names = segment::manifest(run.path())?.segments;
    assert_eq!(
        segment::read(&run.path().join(&names[0]))?.len(),
        batches.len(),
        "nothing is lost in sealing"
    );
    let files = files(&run.path().join(&names[0]))?;
    let total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let buckets: u64 =
        files.iter().filter(|(name, _)| name == "buckets.parquet").map(|(_, bytes)| bytes).sum();
    let each = |bytes: u64| bytes as f64 / crate::bucket_records(batches) as f64;
    println!(
        "log      {:6.2} bytes a bucket record with everything else\n\
         segment  {:6.2} bytes a bucket record; with everything else {:.2}, sealed in {sealed:.2} s",
        each(log_bytes),
        each(buckets),
        each(total)
    );
    Ok(json!({
        "what": "disk_bytes", "batching": batching, "bucket_records": crate::bucket_records(batches),
        "log_bytes": log_bytes, "segment_bytes": total, "buckets_parquet_bytes": buckets, "files": files,
        "log_all_bytes_per_bucket_record": each(log_bytes), "segment_bytes_per_bucket_record": each(buckets),
        "segment_all_bytes_per_bucket_record": each(total), "seal_seconds": sealed,
    }))
}

fn files(folder: &Path) -> anyhow::Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()));
    }
    files.sort();
    Ok(files)
}
