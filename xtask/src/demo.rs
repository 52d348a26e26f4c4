//! `cargo xtask demo`: a real training run on four processes, with the dashboard open.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::system::{Profile, step};
use crate::web;

/// The step from which rank 2 is a straggler. Its input takes 30 ms longer from then on.
const FAULT_FROM: &str = "150";

const SERVER: &str = "paceline";
const TRAINING: &str = "char_lm";

/// The options of the demo.
#[derive(clap::Args)]
pub struct Options {
    /// Do not open a browser
    #[arg(long)]
    no_open: bool,
    /// Stop when training ends
    #[arg(long)]
    exit: bool,
    /// Train without the straggler
    #[arg(long)]
    healthy: bool,
    /// Number of training steps
    #[arg(long)]
    steps: Option<u64>,
}

/// Builds the server and the training job and runs them.
pub fn run(options: &Options) -> anyhow::Result<()> {
    eprintln!(
        "Building the page, the server and the training job: the first time takes six to ten minutes on two cores."
    );
    // The program holds the page. All else of it is built meanwhile, so that it only has to be linked again.
    let page = std::thread::Builder::new().name("page".into()).spawn(|| web::run(web::Size::Any))?;
    step("building the server and the training job", &mut Profile::Dev.build(&[SERVER, TRAINING]))?;
    page.join().map_err(|_| anyhow::anyhow!("building the page failed"))??;
    step("adding the page to the server", &mut Profile::Dev.build(&[SERVER, TRAINING]))?;
    if !options.healthy {
        eprintln!(
            "\nFrom step {FAULT_FROM} on, the input of rank 2 takes 30 ms longer, so that there is a \
             straggler to find. Use --healthy for a run without it."
        );
    }
    let mut child =
        command(options).stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {SERVER}"))?;
    let stdout = child.stdout.take().context("the job has no output")?;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        show(&line);
        if let Some(address) = line.strip_prefix("Dashboard: ")
            && !options.no_open
        {
            open(address);
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "the training run failed ({status}); its last lines are above");
    Ok(())
}

fn command(options: &Options) -> Command {
    let mut command = Command::new(Profile::Dev.folder().join(SERVER));
    command.args(["run", "-n", "4", "--name", "demo"]);
    if !options.exit {
        command.arg("--keep-serving");
    }
    command.args(["--", TRAINING]);
    if let Some(steps) = options.steps {
        command.args(["--steps", &steps.to_string()]);
    }
    if !options.healthy {
        command.args([
            "--slow-rank",
            "2",
            "--slow-phase",
            "input",
            "--slow-ms",
            "30",
            "--slow-from",
            FAULT_FROM,
        ]);
    }
    command
}

#[allow(clippy::print_stdout, reason = "the job's output is this command's output")]
fn show(line: &str) {
    println!("{line}");
}

/// Opens a browser if there is a desktop. Otherwise the user has the printed address.
fn open(address: &str) {
    let desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if desktop || cfg!(target_os = "macos") {
        let opened = Command::new(opener).arg(address).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if opened.is_err() {
            eprintln!("(cannot run {opener}; open {address} in a browser)");
        }
    }
}
