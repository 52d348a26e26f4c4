//! Tests of exports of how devices and hosts were used: rows of a real job, and of 1,024 ranks whose values are drawn.

use std::collections::BTreeMap;
use std::path::Path;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use testkit::feed::Feed;
use testkit::programs::{Job, Server, get_bytes, wait_until};
use testkit::simulator::{Plan, Simulation};
use wire::batch::Note;
use wire::device::{DeviceFigure, DeviceSample};
use wire::live::tile::Tile;

use super::export::{export, refused};

/// Exports the rows of a run in both formats, which must agree, and returns them as the CSV file has them.
fn exported(data: &Path, run: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let path = |name: &str| data.join(name).to_string_lossy().into_owned();
    let (text, table) = (path("u.csv"), path("u.parquet"));
    let said = ["csv", "parquet"].map(|format| {
        let file = if format == "csv" { &text } else { &table };
        export(data, run, &["--utilization", "--format", format, "-o", file])
    });
    let text = std::fs::read_to_string(text)?;
    let mut lines = text.lines();
    anyhow::ensure!(lines.next() == Some("end_unix_ns,seconds,rank,measure,unit,value"));
    let rows: Vec<Vec<String>> = lines.map(|line| line.split(',').map(str::to_owned).collect()).collect();
    for said in said {
        let said = said?;
        anyhow::ensure!(said.starts_with(&format!("{} rows of ", rows.len())), "{said}");
    }
    let table = parquet_rows(Path::new(&table))?;
    let first = table.iter().zip(&rows).find(|(row, other)| row != other);
    anyhow::ensure!(table.len() == rows.len() && first.is_none(), "the formats differ: {first:?}");
    Ok(rows)
}

/// Returns the rows of a table of utilization, as the CSV has them.
fn parquet_rows(path: &Path) -> anyhow::Result<Vec<Vec<String>>> {
    let reader = SerializedFileReader::new(std::fs::File::open(path)?)?;
    reader
        .get_row_iter(None)?
        .map(|row| {
            let row = row?;
            let (seconds, value) = (row.get_double(1)?, row.get_double(5)?);
            let [measure, unit] = [3, 4].map(|at| row.get_string(at).cloned());
            Ok(vec![
                row.get_long(0)?.to_string(),
                format!("{seconds:.3}"),
                row.get_int(2)?.to_string(),
                measure?,
                unit?,
                (value as f32).to_string(),
            ])
        })
        .collect()
}

#[test]
fn the_use_of_hosts_is_exported_as_rows_with_a_second_each() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let arguments = ["-n", "2", "--data", &data.path().to_string_lossy(), "--", "char_lm", "--steps", "100"];
    let (code, printed, complaints) = Job::start(&arguments)?.finish()?;
    anyhow::ensure!(code == 0, "{printed}{complaints}");
    let rows = exported(data.path(), "latest")?;
    let processor_rows: Vec<&Vec<String>> = rows.iter().filter(|row| row[3] == "processor use").collect();
    for rank in ["0", "1"] {
        let mine: Vec<_> = processor_rows.iter().filter(|row| row[2] == rank).collect();
        anyhow::ensure!(mine.len() >= 2, "{processor_rows:?}");
        for row in &mine {
            let (seconds, cores): (f64, f64) = (row[1].parse()?, row[5].parse()?);
            anyhow::ensure!(row[4] == "cores" && seconds <= 3.0 && (0.0..64.0).contains(&cores), "{row:?}");
        }
        anyhow::ensure!(mine.is_sorted_by_key(|row| &row[0]), "{mine:?}");
    }
    let file = data.path().join("u");
    let refusal = refused(data.path(), "latest", &["--utilization", "-o", &file.to_string_lossy()]);
    anyhow::ensure!(refusal.contains("give --format csv or --format parquet"), "{refusal}");
    Ok(())
}

const RANKS: usize = 1_024;
/// The longest time from a sample to the time that the export gives it. The clocks of hosts drift by 50 us/s, and are probed once
/// per batch.
const MAX_ERROR_NANOS: i64 = 2_000_000;

/// The samples of each rank and measure: the true time in nanoseconds, and the value.
type Drawn = BTreeMap<(u32, &'static str), Vec<(i64, f32)>>;

/// Simulates 1,024 ranks that send a sample of their device in every batch, about once per second. Every value is drawn.
fn drawn(seed: u64) -> (Simulation, Drawn) {
    let plan = Plan {
        ranks: RANKS,
        ranks_per_host: 8,
        steps: 24,
        buckets: 1,
        compute: 450_000_000,
        tick: 900_000_000,
        ..Plan::small(seed)
    };
    let mut simulation = Simulation::run(&plan);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut drawn = Drawn::new();
    for received in &mut simulation.batches {
        let batch = &mut received.batch;
        let figures = [
            (DeviceFigure::SmClockMegahertz, "SM clock", random.random_range(210..=1_980), 1e6),
            (DeviceFigure::PowerMilliwatts, "power", random.random_range(60_000..=700_000), 1e-3),
            (DeviceFigure::UtilizationPercent, "device busy", random.random_range(0..=100), 1e-2),
            (DeviceFigure::SmActivityPermille, "SM activity", random.random_range(0..=1_000), 1e-3),
        ];
        for (_, measure, value, unit) in figures {
            let samples = drawn.entry((batch.rank.0, measure)).or_default();
            samples.push((batch.anchor.unix.0, (value as f64 * unit) as f32));
        }
        batch.notes.push(Note::Device(DeviceSample {
            at: batch.anchor.mono,
            device: "a GPU".into(),
            figures: figures.map(|(figure, _, value, _)| (figure, value)).into(),
        }));
    }
    (simulation, drawn)
}

/// Checks that the rows are the `drawn` samples: each once, with its value, at its time.
fn are_as_drawn(rows: &[Vec<String>], drawn: &Drawn) -> anyhow::Result<()> {
    let mut found: BTreeMap<(u32, &str), Vec<(i64, f32)>> = BTreeMap::new();
    for row in rows {
        let series = (row[2].parse()?, row[3].as_str());
        found.entry(series).or_default().push((row[0].parse()?, row[5].parse()?));
    }
    anyhow::ensure!(found.len() == drawn.len(), "{} series, not {}", found.len(), drawn.len());
    for ((rank, measure), drawn) in drawn {
        let found = &found[&(*rank, *measure)];
        let is_as_drawn = |(found, drawn): (&(i64, f32), &(i64, f32))| {
            found.1 == drawn.1 && (found.0 - drawn.0).abs() <= MAX_ERROR_NANOS
        };
        let same = found.len() == drawn.len() && found.iter().zip(drawn).all(is_as_drawn);
        anyhow::ensure!(same, "{measure} of rank {rank}: drawn {drawn:?}, exported {found:?}");
    }
    Ok(())
}

/// Checks that the server, too, has the drawn clock of every rank in nearly all steps.
fn has_drawn_clocks(server: &Server, run: &str, drawn: &Drawn) -> anyhow::Result<()> {
    let url =
        format!("{}/api/v1/runs/{run}/heatmap?measure=sm-clock&reduce=mean&rows={RANKS}", server.address);
    let clocks = wait_until("all steps", || {
        let tile = Tile::decode(&get_bytes(&url).ok()?).ok()?;
        Some(tile).filter(|tile| tile.rows as usize == RANKS && tile.columns() >= 20)
    })?;
    let known = clocks.values.iter().filter(|clock| !clock.is_nan()).count();
    anyhow::ensure!(known * 10 >= clocks.values.len() * 9, "{known} of {} are known", clocks.values.len());
    for (at, clock) in clocks.values.iter().enumerate().filter(|(_, clock)| !clock.is_nan()) {
        let drawn = &drawn[&((at % RANKS) as u32, "SM clock")];
        anyhow::ensure!(drawn.iter().any(|(_, drawn)| drawn == clock), "rank {}: {clock}", at % RANKS);
    }
    Ok(())
}

#[test]
fn the_device_samples_of_1024_ranks_are_exported_as_drawn_also_after_a_restart() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let (simulation, mut drawn) = drawn(14);
    let mut feed = Feed::new(simulation);
    let run = feed.run.clone();
    // The run goes on: each rank has one more batch.
    feed.send_all_but(1, &server.address)?;
    let all = drawn.clone();
    for samples in drawn.values_mut() {
        samples.pop();
    }
    has_drawn_clocks(&server, &run, &drawn)?;
    are_as_drawn(&exported(data.path(), &run)?, &drawn)?;
    server.kill()?;
    let server = Server::start(data.path())?;
    has_drawn_clocks(&server, &run, &drawn)?;
    are_as_drawn(&exported(data.path(), &run)?, &drawn)?;
    feed.send_all_but(0, &server.address)?;
    are_as_drawn(&exported(data.path(), &run)?, &all)
}
