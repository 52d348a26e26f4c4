//! Imports over HTTP: the traces of a simulated job, sent as a form, as the page and curl send them.
#![allow(clippy::disallowed_methods, reason = "threads of a test end with it")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use testkit::kineto::Traced;
use testkit::programs::{Server, get_json, most_resident_bytes, program, wait_until};

/// A job of four ranks and three steps, of which rank 2 sleeps 40 ms twice in each.
const JOB: Traced = Traced { ranks: 4, steps: 3, kernels: 1, sleeps: Some((2, 40_000)) };
const BOUNDARY: &str = "----a-boundary";
const TOKEN: &str = "a-token-of-tests";

/// A form, as a browser writes it.
#[derive(Default)]
struct Form(Vec<u8>);

impl Form {
    /// The traces of the job, plain.
    fn from_job() -> Self {
        let traces = JOB.traces().into_iter().enumerate();
        traces.fold(Self::default(), |form, (rank, trace)| {
            form.with(&format!("resnet-{rank}.json"), trace.as_bytes())
        })
    }

    fn with(mut self, file: &str, bytes: &[u8]) -> Self {
        self.part(&format!("name=\"file\"; filename=\"{file}\""), bytes);
        self
    }

    fn part(&mut self, says: &str, bytes: &[u8]) {
        self.0.extend(format!("--{BOUNDARY}\r\ncontent-disposition: form-data; {says}\r\n\r\n").as_bytes());
        self.0.extend(bytes);
        self.0.extend(b"\r\n");
    }

    fn ended(mut self) -> Vec<u8> {
        self.0.extend(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.0
    }

    /// Sends the form, and returns the status and the answer.
    fn send(self, server: &Server, query: &str, headers: &[(&str, &str)]) -> anyhow::Result<(u16, Value)> {
        let mut request = ureq::post(format!("{}/api/v1/imports{query}", server.address))
            .config()
            .http_status_as_error(false)
            .build()
            .content_type(format!("multipart/form-data; boundary={BOUNDARY}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = request.send(&self.ended()[..])?;
        let text = answer.body_mut().read_to_string()?;
        Ok((answer.status().as_u16(), serde_json::from_str(&text).context(text)?))
    }
}

/// A form that is sent in part so far.
struct Begun {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl Begun {
    /// Sends the first `share` of a form.
    fn send(server: &Server, form: Form, share: f64) -> anyhow::Result<Self> {
        let mut body = form.ended();
        let rest = body.split_off((body.len() as f64 * share) as usize);
        let mut stream = TcpStream::connect(server.listen())?;
        write!(
            stream,
            "POST /api/v1/imports HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n",
            server.listen(),
            body.len() + rest.len()
        )?;
        stream.write_all(&body)?;
        Ok(Self { stream, rest })
    }

    /// Sends the rest, and returns the whole answer.
    fn finish(mut self) -> anyhow::Result<String> {
        self.stream.write_all(&self.rest)?;
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

fn runs(server: &Server) -> anyhow::Result<Vec<Value>> {
    Ok(get_json(&format!("{}/api/v1/runs", server.address))?.as_array().cloned().unwrap_or_default())
}

#[test]
fn files_of_a_form_become_one_run_and_others_are_skipped() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut form = Form::default().with("notes.json", b"{\"a\": 1}");
    for (rank, trace) in JOB.traces().into_iter().enumerate().rev() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(trace.as_bytes())?;
        form = form.with(&format!("C:\\traces\\resnet-{rank}.pt.trace.json.gz"), &packed.finish()?);
    }
    let (status, answer) = form.send(&server, "?name=resnet%2050", &[])?;
    ensure!(
        status == 201 && answer["name"] == "resnet 50" && answer["world_size"] == 4,
        "{status} {answer:#}"
    );
    ensure!(answer["skipped"][0]["file"] == "notes.json", "{answer:#}");
    let reason = answer["skipped"][0]["reason"].as_str().unwrap_or_default();
    ensure!(reason.starts_with("it has no list of events"), "{reason}");
    let rank = &answer["ranks"][2];
    ensure!(rank["rank"] == 2 && rank["file"] == "resnet-2.pt.trace.json.gz", "{answer:#}");
    ensure!(rank["steps"] == serde_json::json!([4, 5, 6]), "{answer:#}");
    ensure!(rank["kernels"] == 24 && rank["collectives"] == 12, "{answer:#}");
    // The list of runs follows the newest records within half a second.
    wait_until("the imported run with its verdict", || {
        let run = runs(&server).ok()?.into_iter().next()?;
        let is_it = run["run"] == answer["run"] && run["imported"] == true && run["state"] == "completed";
        (is_it && run["worst"]["culprit"]["rank"] == 2).then_some(())
    })
}

#[test]
fn an_upload_that_is_cut_stores_nothing_and_makes_room_for_the_next() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut stored = 0;
    let mut send = || {
        let (status, answer) = Form::from_job().send(&server, "", &[]).ok()?;
        stored += usize::from(status == 201);
        Some((status, answer))
    };
    // It holds the only place until it is cut, unless the other import was faster.
    let begun = wait_until("the import to begin", || {
        let begun = Begun::send(&server, Form::from_job(), 0.7).ok()?;
        std::thread::sleep(Duration::from_millis(100));
        let (status, answer) = send()?;
        let error = answer["error"].as_str().unwrap_or_default();
        (status == 503 && error.starts_with("another import is in progress")).then_some(begun)
    })?;
    begun.stream.shutdown(Shutdown::Both)?;
    drop(begun);
    let (_, answer) = wait_until("the place to be free", || send().filter(|(status, _)| *status == 201))?;
    ensure!(answer["name"] == "resnet", "{answer:#}");
    wait_until("the run", || {
        runs(&server).ok()?.iter().any(|run| run["run"] == answer["run"]).then_some(())
    })?;
    ensure!(runs(&server)?.len() == stored, "the cut upload was stored: {:#?}", runs(&server)?);
    Ok(())
}

#[test]
fn a_client_that_ends_early_is_told_so() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut begun = Begun::send(&server, Form::from_job(), 0.9)?;
    begun.stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    begun.stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    ensure!(answer.contains("the files did not arrive whole, and nothing is imported"), "{answer}");
    ensure!(runs(&server)?.is_empty(), "{:#?}", runs(&server)?);
    Ok(())
}

#[test]
fn a_slow_upload_ends_well() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let begun = Begun::send(&server, Form::from_job(), 0.5)?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(runs(&server)?.is_empty(), "a part of the files became a run");
    let answer = begun.finish()?;
    ensure!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    Ok(())
}

/// A client that sends a byte now and then holds the only place for imports for seconds, not for an hour.
#[test]
fn an_import_that_hardly_arrives_is_ended_and_another_gets_its_place() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    // It holds the only place, unless the other import was faster.
    let (mut slow, busy) = wait_until("the slow import to have the place", || {
        let slow = Begun::send(&server, Form::from_job(), 0.5).ok()?;
        std::thread::sleep(Duration::from_millis(200));
        let (status, answer) = Form::from_job().send(&server, "", &[]).ok()?;
        let error = answer["error"].as_str().unwrap_or_default().to_owned();
        (status == 503).then_some((slow, error))
    })?;
    let mut drip = slow.stream.try_clone()?;
    let bytes = slow.rest.clone();
    // One byte each half second, until the server closes the connection.
    let dripping = std::thread::spawn(move || {
        let is_taken = |byte: &&u8| {
            std::thread::sleep(Duration::from_millis(500));
            drip.write_all(&[**byte]).is_ok()
        };
        bytes.iter().take(120).take_while(is_taken).count()
    });
    ensure!(busy.starts_with("another import is in progress") && busy.contains("resnet-"), "{busy}");
    ensure!(busy.contains(" of it have arrived"), "{busy}");
    let began = Instant::now();
    let mut answer = String::new();
    // The connection may be reset after the answer, because the client still sends.
    let _reset = slow.stream.read_to_string(&mut answer);
    ensure!(began.elapsed() < Duration::from_secs(25), "refused after {:?}", began.elapsed());
    ensure!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("and the slowest rate is 64 KiB"),
        "{answer}"
    );
    let (status, answer) = Form::from_job().send(&server, "", &[])?;
    ensure!(status == 201, "{status} {answer}");
    slow.stream.shutdown(Shutdown::Both).ok();
    drop(dripping.join());
    Ok(())
}

/// Half of the compressed file is missing. Whoever reads to its end says so.
#[test]
fn a_file_whose_text_is_far_longer_is_refused_by_name_before_it_is_read_to_its_end() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    bomb.write_all(b"{\"traceEvents\": [")?;
    (0..1_024).try_for_each(|_| bomb.write_all(&[b' '; 1 << 20]))?;
    let bomb = bomb.finish()?;
    let form = Form::default().with("bomb.json.gz", &bomb[..bomb.len() / 2]);
    let (status, answer) = form.send(&server, "", &[])?;
    let error = answer["error"].as_str().unwrap_or_default();
    ensure!(status == 400, "{status} {answer}");
    ensure!(
        error.starts_with(
            "the file cannot be imported: bomb.json.gz: it is compressed, and the text is more than 200 times"
        ),
        "{error}"
    );
    Ok(())
}

#[test]
fn what_is_not_a_job_is_refused_with_the_importers_sentence() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let traces = JOB.traces();
    let twice = Form::default().with("a.json", traces[0].as_bytes()).with("b.json", traces[0].as_bytes());
    let mut text = Form::default();
    text.part("name=\"name\"", b"resnet");
    for (form, query, sentence) in [
        (Form::default(), "", "none of the 0 files can be imported"),
        (Form::default().with("passwd", b"root:x:0"), "", "the file cannot be imported: passwd: it does"),
        (twice, "", "a.json and b.json both say that they are of rank 0"),
        (text, "", "the part \"name\" of the form is not a file"),
        (Form::from_job(), &format!("?name={}", "x".repeat(300)), "the name of a run has at most 200"),
    ] {
        let (status, answer) = form.send(&server, query, &[])?;
        let error = answer["error"].as_str().unwrap_or_default();
        ensure!(status == 400 && error.starts_with(sentence), "{sentence}: {status} {error}");
    }
    let mut batch = ureq::post(format!("{}/api/v1/imports", server.address))
        .config()
        .http_status_as_error(false)
        .build()
        .send("{}")?;
    let error = batch.body_mut().read_to_string()?;
    ensure!(batch.status() == 400 && error.contains("multipart/form-data"), "{error}");
    ensure!(runs(&server)?.is_empty(), "{:#?}", runs(&server)?);
    Ok(())
}

#[test]
fn only_the_page_and_those_with_the_token_may_import() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut command = Command::new(program("paceline"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .env("PACELINE_TOKEN", TOKEN);
    let server = Server::spawn(command)?;
    let bearer = format!("Bearer {TOKEN}");
    let cookie = testkit::programs::sign_in(&server.address, TOKEN)?;
    let old = format!("paceline_token={TOKEN}");
    for (headers, status) in [
        (&[][..], 401),
        (&[("authorization", "Bearer another-token")], 401),
        (&[("cookie", old.as_str())], 401),
        (&[("cookie", cookie.as_str()), ("origin", "http://evil.example")], 403),
        (&[("cookie", cookie.as_str()), ("origin", server.address.as_str())], 201),
        (&[("authorization", bearer.as_str())], 201),
    ] {
        let (answered, answer) = Form::from_job().send(&server, "", headers)?;
        ensure!(answered == status, "{headers:?}: {answered} {answer}");
    }
    Ok(())
}

#[test]
fn neither_a_huge_file_nor_a_part_without_end_is_held_in_memory() -> anyhow::Result<()> {
    const MIB: usize = 1 << 20;
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let began = Instant::now();
    let before = most_resident_bytes(server.pid())?;
    // An event that is not kept, many times.
    let event = r#"{"ph":"X","cat":"python_function","name":"forward","ts":1,"dur":1},"#;
    let mut huge = JOB.traces()[0].trim_end().trim_end_matches("]}").trim_end().to_owned();
    huge += ",";
    huge.extend(std::iter::repeat_n(event, 256 * MIB / event.len()));
    huge += "{}]}";
    let (status, answer) = Form::default().with("huge.json", huge.as_bytes()).send(&server, "", &[])?;
    ensure!(status == 201 && answer["ranks"][0]["kernels"] == 24, "{status} {answer:#}");
    drop(huge);
    let mut endless = Form::default();
    endless.part(&format!("name=\"{}\"", "x".repeat(256 * MIB)), b"");
    let error = match endless.send(&server, "", &[]) {
        Ok((status, answer)) => format!("{status} {answer}"),
        // The answer comes while the form is still sent.
        Err(error) => error.to_string(),
    };
    ensure!(!error.starts_with("201"), "{error}");
    let grown = most_resident_bytes(server.pid())?.saturating_sub(before);
    ensure!(grown < 100 * MIB as u64, "{} MiB after {error}, in {:?}", grown / MIB as u64, began.elapsed());
    Ok(())
}
