//! Tests that one wheel serves each supported Python: the program, `watch`, the stacks of a slow line, and its removal.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use testkit::fetch::skip;
use testkit::programs::{Running, Server, said, wait_until};
use testkit::torch::{Torch, is_for_all};

use super::pytorch::{result_of, script};
use super::wheel::Environment;

/// The supported Pythons, each with the newest release of PyTorch that has wheels for it and is tested.
const PYTHONS: [(&str, &str); 6] = [
    ("3.9", "2.8.0"),
    ("3.10", "2.10.0"),
    ("3.11", "2.15.0"),
    ("3.12", "2.15.0"),
    ("3.13", "2.15.0"),
    ("3.14", "2.15.0"),
];

/// Returns an interpreter of this version: in `PATH`, or of pyenv.
fn interpreter(version: &str) -> Option<PathBuf> {
    let name = format!("python{version}");
    let paths = env::var_os("PATH").unwrap_or_default();
    let pyenv = Path::new(&env::var_os("HOME")?).join(".pyenv/versions");
    let pyenv_folders =
        pyenv.read_dir().into_iter().flatten().flatten().map(|found| found.path().join("bin"));
    let runs = |python: &PathBuf| {
        // pyenv has a program in PATH that fails if the version is not selected. Debian's Python may have no venv.
        let probe = Command::new(python).args(["-c", "import ensurepip, venv"]).output();
        probe.is_ok_and(|output| output.status.success())
    };
    env::split_paths(&paths).chain(pyenv_folders).map(|folder| folder.join(&name)).find(runs)
}

/// Returns whether this machine's own Python has this version.
fn is_own(version: &str) -> bool {
    let ask = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"];
    let own = Command::new("python3").args(ask).output();
    own.is_ok_and(|own| String::from_utf8_lossy(&own.stdout).trim() == version)
}

/// Returns PyTorch for an interpreter. That of this machine's own Python serves other tests as well.
fn torch_for(python: &Path, version: &str, release: &'static str) -> Torch {
    if is_own(version) { Torch::of(release) } else { Torch::with(release, python, version) }
}

/// Returns the number of the line of a script that ends with a comment.
fn line_of(name: &str, comment: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(script(name))?;
    let at = text.lines().position(|line| line.ends_with(&format!("  # {comment}")));
    Ok(format!("{name}:{} ", at.context("no such line")? + 1))
}

/// Asks for stacks until they have the line.
fn is_seen(environment: &Environment, server: &Server, line: &str) -> anyhow::Result<()> {
    let ask = ["stacks", "--server", &server.address, "--millis", "500"];
    let mut last = String::new();
    let found = wait_until("the stacks", || {
        let (printed, complaints) = said(&environment.run("paceline", &ask, &[]).ok()?);
        last = printed + &complaints;
        last.lines().any(|found| found.contains(line)).then(|| last.clone())
    });
    let found = found.with_context(|| format!("{line}: {last}"))?;
    ensure!(found.contains("main thread"), "{found}");
    Ok(())
}

/// Starts a job. Its end is that of the value.
fn start(environment: &Environment, arguments: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(environment.program("python"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(Running(command.spawn()?))
}

/// Tests what needs no PyTorch.
fn works(environment: &Environment, server: &Server) -> anyhow::Result<()> {
    environment.answers()?;
    let data = environment.folder.path().join("data");
    let data = data.to_string_lossy();
    let python = environment.program("python").to_string_lossy().into_owned();
    let job = ["run", "--data", &data, "--", &python, "-c", "print(6 * 7); raise SystemExit(3)"];
    let output = environment.run("paceline", &job, &[])?;
    ensure!(output.status.code() == Some(3) && said(&output).0.contains("42"), "{output:?}");
    let mut job = start(environment, &[&script("slow_line.py"), &server.address])?;
    let mut line = String::new();
    BufReader::new(job.0.stdout.take().context("no output")?).read_line(&mut line)?;
    ensure!(line == "observed\n", "{line}");
    is_seen(environment, server, &line_of("slow_line.py", "slow")?)
}

/// Tests a DDP job that calls `watch`, and the stacks of a slow line in a job.
fn works_with_torch(environment: &Environment, server: &Server) -> anyhow::Result<()> {
    let torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"];
    let exact = |more: &[&str]| -> anyhow::Result<String> {
        let script = script("exact.py");
        let job = [&torchrun[..], &[&script, "20"], more].concat();
        result_of(&environment.run("python", &job, &[])?)
    };
    ensure!(exact(&[])? == exact(&[&server.address])?, "`watch` changed the result");
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut job = Command::new(environment.program("paceline"));
    job.args(["run", "--server", &server.address]).arg(environment.program("python")).args(torchrun);
    job.args([&script("planted.py"), "getitem", "0", "3000"]).env("FOLDER", data.path());
    let _job = Running(job.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    is_seen(environment, &server, &line_of("planted.py", "getitem")?)
}

#[test]
fn one_wheel_serves_all_pythons() -> anyhow::Result<()> {
    if !is_for_all() {
        skip("other Pythons than this machine's own", "only with `cargo xtask test --all-torch`");
    }
    for (version, release) in PYTHONS {
        if !is_for_all() && !is_own(version) {
            continue;
        }
        let Some(python) = interpreter(version) else {
            skip(&format!("Python {version}"), "there is no such interpreter with venv");
            continue;
        };
        let torch = is_for_all().then(|| torch_for(&python, version, release));
        let Some(environment) = Environment::new(&python, torch.as_ref())? else { return Ok(()) };
        let data = tempfile::tempdir()?;
        let server = Server::start(data.path())?;
        works(&environment, &server).with_context(|| format!("Python {version}"))?;
        if torch.is_some() {
            works_with_torch(&environment, &server)
                .with_context(|| format!("Python {version}, PyTorch {release}"))?;
        }
        environment.is_removed()?;
    }
    Ok(())
}
