//! Tests that one sender can neither fill nor stop a server: other runs are served while it tries.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]
#![allow(clippy::print_stdout, reason = "measured figures help to choose the bounds")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use testkit::hostile;
use testkit::programs::{Job, Server, get_json, paceline, post, program, resident_bytes, said, wait_until};
use wire::batch::Batch;

/// The longest answer time for a batch of another run while a hostile batch is processed.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// A server under attack, with its own data directory.
struct Tried {
    server: Server,
    data: tempfile::TempDir,
    resident_before: u64,
}

impl Tried {
    fn start() -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let server = Server::start(data.path())?;
        let resident_before = resident_bytes(server.pid())?;
        Ok(Self { server, data, resident_before })
    }

    /// Sends a batch and returns the status of the answer.
    fn send(&self, batch: &Batch) -> anyhow::Result<u16> {
        Ok(post(&self.server.address, batch)?.status().as_u16())
    }

    /// Serves a well-behaved run for some seconds. Returns the largest growth of the server's memory in that time.
    fn grown_while_others_are_served(&self, seconds: u64) -> anyhow::Result<u64> {
        let end = Instant::now() + Duration::from_secs(seconds);
        let (mut most, mut seq) = (0, 0);
        while Instant::now() < end {
            let began = Instant::now();
            assert_eq!(self.send(&hostile::steps("bystander", 1, seq, seq..seq + 1, 4))?, 200);
            let took = began.elapsed();
            assert!(took < ANSWER_WITHIN, "a batch of another run took {took:?}");
            seq += 1;
            most = resident_bytes(self.server.pid())?.saturating_sub(self.resident_before).max(most);
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("grew by {} MiB", most / MIB);
        Ok(most)
    }

    /// Restarts the server on the same directory. Returns the memory of the new server.
    fn restart(self) -> anyhow::Result<(Server, u64, tempfile::TempDir)> {
        self.server.kill()?;
        let server = Server::start(self.data.path())?;
        let resident = resident_bytes(server.pid())?;
        println!("restarted with {} MiB", resident / MIB);
        Ok((server, resident, self.data))
    }
}

fn metrics(address: &str) -> anyhow::Result<String> {
    let mut answer = ureq::get(format!("{address}/metrics")).call()?;
    Ok(answer.body_mut().with_config().limit(2 << 30).read_to_string()?)
}

#[test]
fn a_claim_of_65536_ranks_costs_little_memory() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    tried.send(&hostile::steps("wide", 65_536, 0, 0..3_000, 0))?;
    let grown = tried.grown_while_others_are_served(3)?;
    assert!(grown < 128 * MIB, "one batch costs {grown} bytes");
    let (_server, resident, _data) = tried.restart()?;
    assert!(resident < 256 * MIB, "restarted with {resident} bytes");
    Ok(())
}

#[test]
fn thirty_runs_of_65536_ranks_cost_little_memory() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    for run in 0..30 {
        tried.send(&hostile::steps(&format!("wide-{run}"), 65_536, 0, 0..1, 0))?;
    }
    let grown = tried.grown_while_others_are_served(3)?;
    assert!(grown < 256 * MIB, "30 batches cost {grown} bytes");
    Ok(())
}

/// Each run is one batch of about 100 bytes. The steps of an imported job are analyzed even if most ranks have no file.
#[test]
fn forty_imported_jobs_of_65536_ranks_cost_little_memory() -> anyhow::Result<()> {
    const RUNS: u32 = 40;
    let tried = Tried::start()?;
    let frame = wire::codec::encode(&hostile::claim("claim-0", 65_536))?;
    for run in 0..RUNS {
        assert_eq!(tried.send(&hostile::claim(&format!("claim-{run}"), 65_536))?, 200);
    }
    let analyzed = |address: &str| {
        let runs = get_json(&format!("{address}/api/v1/runs")).ok()?;
        let last_steps = runs.as_array()?.iter().filter(|run| run["last_step"] == 5).count();
        (last_steps == RUNS as usize).then_some(())
    };
    wait_until("the steps of all runs", || analyzed(&tried.server.address))?;
    let grown = tried.grown_while_others_are_served(2)?;
    println!("{RUNS} batches of {} bytes cost {} MiB", frame.len(), grown / MIB);
    assert!(grown < 512 * MIB, "{RUNS} batches of {} bytes cost {grown} bytes", frame.len());
    let (server, _, _data) = tried.restart()?;
    wait_until("the steps of all runs", || analyzed(&server.address))?;
    let resident = resident_bytes(server.pid())?;
    println!("restarted with {} MiB", resident / MIB);
    assert!(resident < 512 * MIB, "restarted with {resident} bytes");
    Ok(())
}

/// Each run is one batch of 70 bytes.
#[test]
fn runs_of_65536_steps_that_never_end_cost_little_memory() -> anyhow::Result<()> {
    const RUNS: u32 = 20;
    let tried = Tried::start()?;
    for run in 0..RUNS {
        assert_eq!(tried.send(&hostile::unended(&format!("open-{run}"), 65_536, 0..65_536))?, 200);
    }
    let grown = tried.grown_while_others_are_served(1)?;
    assert!(grown < 384 * MIB, "{RUNS} batches cost {grown} bytes");
    let (_server, resident, _data) = tried.restart()?;
    assert!(resident < 512 * MIB, "restarted with {resident} bytes");
    Ok(())
}

/// Like the exchanges of a mixture of experts. The model of their times once tried all pairs of sizes.
#[test]
fn thirty_thousand_sizes_of_collectives_are_shown() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    for seq in 0..5 {
        let batch = hostile::sizes("sizes", seq, seq * 100..(seq + 1) * 100, 60);
        assert_eq!(tried.send(&batch)?, 200);
    }
    let shown = |address: &str| {
        let report = get_json(&format!("{address}/api/v1/runs/sizes")).ok()?;
        (report["steps"].as_u64()? >= 498).then_some(report)
    };
    let report = wait_until("all steps", || shown(&tried.server.address))?;
    assert_eq!(report["buckets"].as_array().map(Vec::len), Some(4_096));
    assert!(report["gaps"].to_string().contains("buckets and sizes"), "{}", report["gaps"]);
    let (server, _, _data) = tried.restart()?;
    wait_until("all steps", || shown(&server.address))?;
    Ok(())
}

#[test]
fn only_so_many_layouts_of_a_run_are_kept() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    for seq in 0..20 {
        assert_eq!(tried.send(&hostile::layouts("layouts", seq))?, 200);
    }
    let grown = tried.grown_while_others_are_served(1)?;
    assert!(grown < 256 * MIB, "640 layouts cost {grown} bytes");
    Ok(())
}

#[test]
fn many_buckets_do_not_fill_the_metrics() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    for seq in 0..3 {
        tried.send(&hostile::steps("labels", 1, seq, seq..seq + 1, 60_000))?;
        let last_step = || {
            let run = get_json(&format!("{}/api/v1/runs/labels/summary", tried.server.address)).ok()?;
            run["last_step"].as_u64().filter(|&last| last >= seq)
        };
        wait_until("the step to be analyzed", last_step)?;
    }
    let text = metrics(&tried.server.address)?;
    println!("/metrics: {} bytes", text.len());
    assert!(text.len() < MIB as usize, "/metrics has {} bytes", text.len());
    Ok(())
}

#[test]
fn a_step_of_60000_collectives_does_not_delay_other_runs() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    tried.send(&hostile::steps("deep", 1, 0, 0..1, 60_000))?;
    let grown = tried.grown_while_others_are_served(5)?;
    assert!(grown < 256 * MIB, "60,000 collectives cost {grown} bytes");
    Ok(())
}

#[test]
fn a_thousand_collectives_per_step_stay_within_the_bound_of_a_run() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    for seq in 0..300 {
        let status = tried.send(&hostile::steps("many", 1, seq, seq * 60..(seq + 1) * 60, 1_000))?;
        assert!([200, 503].contains(&status), "{status}");
    }
    let grown = tried.grown_while_others_are_served(3)?;
    assert!(grown < 1_300 * MIB, "18,000 steps of 1,000 collectives cost {grown} bytes");
    Ok(())
}

/// Connects and sends `text`. The connection stays open.
fn say(listen: &str, text: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(listen)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(text.as_bytes())?;
    Ok(stream)
}

/// Opens the live stream of a run.
pub fn watch(listen: &str, run: &str) -> anyhow::Result<TcpStream> {
    let upgrade = format!(
        "GET /api/v1/live?run={run} HTTP/1.1\r\nhost: {listen}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut stream = say(listen, &upgrade)?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    assert_eq!(&status, b"HTTP/1.1 101");
    Ok(stream)
}

#[test]
fn silent_connections_do_not_block_other_clients() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut command = std::process::Command::new("sh");
    // The limit of open files on most systems. The server cannot raise a hard limit.
    command.args(["-c", "ulimit -n 1024 && exec \"$0\" serve --listen 127.0.0.1:0 --data \"$1\""]);
    let server = Server::spawn({
        command.arg(program("paceline")).arg(data.path());
        command
    })?;
    let silent =
        |at: usize| say(server.listen(), if at.is_multiple_of(2) { "" } else { "GET /healthz HTTP/1.1\r\n" });
    let _open: Vec<TcpStream> = (0..1_100).filter_map(|at| silent(at).ok()).collect();
    let began = Instant::now();
    let health = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.listen());
    let mut answer = String::new();
    say(server.listen(), &health)?.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok\n"), "{answer}");
    server.send([hostile::steps("served", 1, 0, 0..1, 1)])?;
    assert!(began.elapsed() < Duration::from_secs(2), "the answers took {:?}", began.elapsed());
    Ok(())
}

/// Limits on connections and requests are those of HTTP/1.1. HTTP/2 has hundreds of requests on a connection.
#[test]
fn http_2_is_not_spoken() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    let mut answer = String::new();
    say(tried.server.listen(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?.read_to_string(&mut answer)?;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer:?}");
    Ok(())
}

#[test]
fn connections_that_only_declare_a_body_take_no_memory_from_others() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    let listen = tried.server.listen();
    let declared = |at: usize| {
        let length =
            if at.is_multiple_of(2) { "content-length: 4194304" } else { "transfer-encoding: chunked" };
        say(listen, &format!("POST /api/v1/ingest HTTP/1.1\r\nhost: {listen}\r\n{length}\r\n\r\n"))
    };
    let _open: Vec<TcpStream> = (0..200).map(declared).collect::<Result<_, _>>()?;
    tried.grown_while_others_are_served(2)?;
    Ok(())
}

#[test]
fn endless_messages_to_the_live_stream_cost_little_memory() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = watch(tried.server.listen(), "unknown")?;
        // 60 fragments of 1 MiB of a binary message that never ends. The server may close the connection at any time.
        let _hung_up = (0..60).try_for_each(|at| {
            let mut fragment = vec![if at == 0 { 0x02 } else { 0x00 }, 0xff];
            fragment.extend_from_slice(&(1_u64 << 20).to_be_bytes());
            // A mask of zeros and the payload.
            fragment.resize(fragment.len() + 4 + (1 << 20), 0);
            client.write_all(&fragment)
        });
        clients.push(client);
    }
    let grown = tried.grown_while_others_are_served(1)?;
    assert!(grown < 64 * MIB, "eight messages cost {grown} bytes");
    Ok(())
}

#[test]
fn thousands_of_runs_are_small_in_memory_and_in_the_metrics() -> anyhow::Result<()> {
    const RUNS: u64 = 2_000;
    let tried = Tried::start()?;
    for run in 0..RUNS {
        let id = format!("run-{run}");
        tried.server.send([hostile::steps(&id, 1, 0, 0..4, 4), hostile::goodbye(&id, 1, 1)])?;
    }
    let ended = || {
        let runs = get_json(&format!("{}/api/v1/runs", tried.server.address)).ok()?;
        let ended = runs.as_array()?.iter().filter(|run| run["state"] == "completed").count() as u64;
        (ended == RUNS).then_some(())
    };
    wait_until("all runs to complete", ended)?;
    let grown = resident_bytes(tried.server.pid())?.saturating_sub(tried.resident_before);
    let text = metrics(&tried.server.address)?;
    println!("{} KiB per run, /metrics {} MiB", grown / RUNS / 1024, text.len() as u64 / MIB);
    assert!(text.len() < 32 * MIB as usize, "/metrics has {} bytes", text.len());
    let began = Instant::now();
    let (server, resident, _data) = tried.restart()?;
    println!("restarted in {:?}", began.elapsed());
    assert!(resident < 64 * MIB, "restarted with {resident} bytes for {RUNS} completed runs");
    // A run that is no longer in memory is read on request.
    let report = get_json(&format!("{}/api/v1/runs/run-7", server.address))?;
    assert_eq!(report["run"], "run-7");
    let ranks = ureq::get(format!("{}/api/v1/runs/run-7/steps/3/ranks", server.address)).call()?;
    assert_eq!(ranks.status(), 200);
    Ok(())
}

/// The runs in this test send nothing more and never end.
#[test]
fn hundreds_of_runs_share_few_open_files() -> anyhow::Result<()> {
    const RUNS: u64 = 400;
    let data = tempfile::tempdir()?;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 128 && exec \"$0\" serve --listen 127.0.0.1:0 --data \"$1\""]);
    command.arg(program("paceline")).arg(data.path());
    let server = Server::spawn(command)?;
    let client = ureq::Agent::new_with_defaults();
    let url = format!("{}/api/v1/ingest", server.address);
    let mut most = 0;
    for seq in 0..2 {
        for run in 0..RUNS {
            let frame = wire::codec::encode(&hostile::steps(&format!("run-{run}"), 1, seq, seq..seq + 1, 2))?;
            client.post(&url).send(&frame[..]).with_context(|| format!("run {run}, batch {seq}"))?;
            most = most.max(open_files(server.pid())?);
        }
    }
    println!("{most} files open");
    assert!(most < 100, "{most} files were open for {RUNS} runs");
    let steps = |run: u64| get_json(&format!("{}/api/v1/runs/run-{run}/summary", server.address)).ok();
    for run in [0, RUNS / 2, RUNS - 1] {
        let both = || steps(run).filter(|summary| summary["last_step"] == 1);
        wait_until("both steps", both)?;
        assert!(!data.path().join(format!("runs/run-{run}/log-000002.plog")).exists(), "has a second log");
    }
    // The server still serves the page, a live stream and the report of a run.
    let _stream = watch(server.listen(), "run-7")?;
    assert_eq!(ureq::get(&server.address).call()?.status(), 200);
    assert_eq!(get_json(&format!("{}/api/v1/runs/run-7", server.address))?["run"], "run-7");
    Ok(())
}

fn open_files(pid: u32) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

#[test]
fn absurd_step_indices_are_refused_and_requests_may_have_any_range() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    let last = u64::from(u32::MAX);
    assert_eq!(tried.send(&hostile::steps("far", 1, 0, 3..4, 1))?, 200);
    assert_eq!(tried.send(&hostile::steps("far", 1, 1, last..last + 1, 1))?, 200);
    for step in [last + 1, u64::MAX - 1] {
        assert_eq!(
            tried.send(&Batch { events: vec![hostile::end_of(step)], ..hostile::empty("far", 1, 2) })?,
            400
        );
    }
    let seen = || {
        let run = get_json(&format!("{}/api/v1/runs/far/summary", tried.server.address)).ok()?;
        (run["last_step"].as_u64() == Some(last)).then_some(())
    };
    wait_until("both steps to be analyzed", seen)?;
    let most = u64::MAX;
    let views = [
        "steps".to_owned(),
        format!("steps?from={most}"),
        format!("heatmap?from=0&to={most}&columns=1"),
        format!("heatmap?from={most}&to={most}"),
        format!("steps/{most}/ranks"),
        format!("export?steps={}..{most}", most - 10),
        format!("export?steps=0..{most}"),
        format!("export?format=csv&steps={last}..{most}"),
        format!("?at={most}"),
    ];
    let client = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    for view in views {
        let url = format!("{}/api/v1/runs/far/{view}", tried.server.address).replace("/?", "?");
        let began = Instant::now();
        let status = client.get(&url).call()?.status().as_u16();
        assert!(status < 500, "{view}: {status}");
        assert!(began.elapsed() < Duration::from_secs(2), "{view} took {:?}", began.elapsed());
    }
    Ok(())
}

#[test]
fn names_and_reasons_send_no_control_characters_to_a_terminal() -> anyhow::Result<()> {
    let tried = Tried::start()?;
    let hostile_text = "\x1b]0;owned\x07\x1b[2Jname\u{9b}31m";
    let mut hello = hostile::goodbye("escapes", 1, 0);
    hello.notes.insert(0, hostile::hello(hostile_text));
    hello
        .notes
        .push(wire::batch::Note::Bye(wire::batch::Bye { completed: false, reason: hostile_text.into() }));
    hello.notes.remove(1);
    assert_eq!(tried.send(&hello)?, 200);
    assert_eq!(tried.send(&hostile::steps("escapes", 1, 1, 0..60, 2))?, 200);
    tried.server.kill()?;
    let data = tried.data.path().to_string_lossy().into_owned();
    for arguments in [&["runs"][..], &["report", "escapes"], &["compare", "escapes", "escapes"]] {
        let (printed, complaints) = said(&paceline(&[arguments, &["--data", &data]].concat())?);
        let is_obeyed = |c: char| c.is_control() && c != '\n';
        assert!(
            !printed.contains(is_obeyed) && !complaints.contains(is_obeyed),
            "{arguments:?}: {printed:?}"
        );
    }
    Ok(())
}

#[test]
fn a_token_is_not_visible_in_arguments() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let file = data.path().join("token");
    std::fs::write(&file, "s3cret-token\n")?;
    let mut command = std::process::Command::new(program("paceline"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--token-file"])
        .arg(&file)
        .arg("--data")
        .arg(data.path());
    let server = Server::spawn(command)?;
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", server.pid()))?;
    assert!(!arguments.contains("s3cret"), "{arguments:?}");
    let get = |token: &str| {
        let client = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let url = format!("{}/api/v1/runs", server.address);
        client
            .get(url)
            .header("authorization", format!("Bearer {token}"))
            .call()
            .map(|answer| answer.status().as_u16())
    };
    assert_eq!((get("s3cret-token")?, get("s3cret-tokem")?), (200, 401));
    let refused = paceline(&["serve", "--token", "s3cret-token"])?;
    assert!(!refused.status.success(), "the command line accepts a token");
    Ok(())
}

#[test]
fn an_open_dashboard_does_not_delay_the_end_of_a_job() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    let mut job = Job::start(&["-n", "1", "--data", &data_text, "--", "char_lm", "--steps", "60"])?;
    let line = job.wait_for("Dashboard: http://")?;
    let page = line.trim().trim_start_matches("Dashboard: http://");
    let (listen, run) = page.split_once("/runs/").unwrap_or_default();
    let mut stream = watch(listen, run)?;
    let reader = std::thread::spawn(move || drop(stream.read_to_end(&mut Vec::new())));
    // The closing report is printed once everything is analyzed. After that, only the server has to stop.
    job.wait_for("Not known:")?;
    let began = Instant::now();
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    assert!(began.elapsed() < Duration::from_secs(4), "the end took {:?}", began.elapsed());
    reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))
}

#[test]
fn stored_data_is_not_readable_by_other_users() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let tried = Tried::start()?;
    assert_eq!(tried.send(&hostile::steps("private", 1, 0, 0..1, 1))?, 200);
    let mode = |path: &str| -> anyhow::Result<u32> {
        Ok(std::fs::metadata(tried.data.path().join(path))?.permissions().mode() & 0o777)
    };
    assert_eq!(mode("runs")?, 0o700);
    assert_eq!(mode("runs/private")?, 0o700);
    assert_eq!(mode("runs/private/log-000001.plog")?, 0o600);
    assert_eq!(mode("server.json")?, 0o600);
    Ok(())
}

/// `paceline run` does not change the umask, because its ranks would inherit it.
#[test]
fn records_of_a_job_are_not_readable_by_other_users() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    let job = Job::start(&["-n", "1", "--data", &data_text, "--", "char_lm", "--steps", "20"])?;
    let (code, printed, complaints) = job.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    for run in std::fs::read_dir(data.path().join("runs"))? {
        for file in std::fs::read_dir(run?.path())? {
            let file = file?;
            assert_eq!(file.metadata()?.permissions().mode() & 0o077, 0, "{}", file.path().display());
        }
    }
    Ok(())
}
