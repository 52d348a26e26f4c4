//! The size of the log, and of the segment that the store seals from it.

use std::path::Path;
use std::time::Instant;

use paceline::store::directory::Layout;
use paceline::store::manifest::Manifest;
use paceline::store::sealer;
use paceline::store::segment::{self, Received};
use serde_json::{Value, json};
use testkit::stored::log;

pub fn sizes(batching: &str, batches: &[Received], frames: &[Vec<u8>]) -> anyhow::Result<Value> {
    let data = tempfile::tempdir()?;
    let run = Layout::new(data.path()).folder(&batches[0].batch.run);
    std::fs::create_dir_all(&run.path)?;
    std::fs::write(run.log(1), log(batches, frames))?;
    let log_bytes = run.log(1).metadata()?.len();
    let began = Instant::now();
    sealer::seal(&run, 1)?;
    let sealed = began.elapsed().as_secs_f64();
    let manifest = Manifest::read(&run)?;
    assert_eq!(segment::read(&run, &manifest.segments[0])?.len(), batches.len(), "sealing lost batches");
    let files = files(&run.segment(1))?;
    let total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let buckets: u64 =
        files.iter().filter(|(name, _)| name == "buckets.parquet").map(|(_, bytes)| bytes).sum();
    let per_bucket_record = |bytes: u64| bytes as f64 / crate::bucket_records(batches) as f64;
    println!(
        "log      {:6.2} bytes per bucket record with everything else\n\
         segment  {:6.2} bytes per bucket record; {:.2} with everything else, sealed in {sealed:.2} s",
        per_bucket_record(log_bytes),
        per_bucket_record(buckets),
        per_bucket_record(total)
    );
    Ok(json!({
        "what": "disk_bytes", "batching": batching, "bucket_records": crate::bucket_records(batches),
        "log_bytes": log_bytes, "segment_bytes": total, "buckets_parquet_bytes": buckets, "files": files,
        "log_all_bytes_per_bucket_record": per_bucket_record(log_bytes), "segment_bytes_per_bucket_record": per_bucket_record(buckets),
        "segment_all_bytes_per_bucket_record": per_bucket_record(total), "seal_seconds": sealed,
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
