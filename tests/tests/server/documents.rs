//! Tests of the commands in the documents: whatever a reader may copy has to work. Each command in a shell block is run, or
//! is parsed as `paceline` parses it, or is in a list with the reason why neither can be done here.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use clap::Parser as _;
use clap::error::ErrorKind;
use paceline::cli::Arguments;
use testkit::programs::{Server, said, sign_in};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The documents, as patterns.
const DOCUMENTS: [&str; 7] = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "deploy/README.md",
    "deploy/prometheus/RUNBOOK.md",
    "benches/README.md",
];
/// The languages of blocks that hold no commands. A block in a language that is not here, nor a shell, is an error.
const OTHER_LANGUAGES: [&str; 4] = ["text", "python", "toml", "rust,ignore"];

/// The commands that the test of the guide's several hosts runs, in order: the token, the server, and the variables of a job.
const TOKEN: &str = "(umask 077; head -c 32 /dev/urandom | base64 > token)";
const SERVE: &str = "paceline serve --listen 0.0.0.0:8080 --token-file token --host-name paceline.example";
const VARIABLES: [&str; 3] = [
    "export PACELINE_SERVER=http://paceline.example:8080",
    "export PACELINE_TOKEN=$(cat token)",
    "export PACELINE_RUN_ID=my-model-$(date +%s)",
];

const BUILDS: &str = "builds everything, which takes minutes";
const SLURM: &str = "needs a cluster with Slurm";
const MONITORED: &str = "tests/tests/server/alerts.rs runs it, with other folders";
/// The commands that are neither run nor parsed, and why.
const ELSEWHERE: [(&str, &str); 17] = [
    ("cargo xtask demo", BUILDS),
    ("cargo xtask test", BUILDS),
    (
        "cargo xtask wheel && pip install target/wheels/paceline-*.whl",
        "tests/tests/hooks/wheel.rs installs the wheel",
    ),
    ("cargo build --release --bin paceline", BUILDS),
    ("export PATH=$PWD/target/release:$PATH", "is where the tests have their programs from"),
    ("cargo test --test FOLDER NAME", BUILDS),
    ("cargo xtask gpu", "needs nvcc"),
    ("gpu/accept.sh RESULTS", "needs a GPU"),
    ("ssh -N -L 8080:127.0.0.1:8080 paceline.example", "needs another host"),
    (
        "export PACELINE_SERVER=http://127.0.0.1:8080",
        "is the near end of that tunnel; agent/src/config.rs tests such addresses",
    ),
    (
        "export PACELINE_SERVER=http://paceline.example:8080 PACELINE_TOKEN=$(cat ~/paceline-token)",
        "reads the home folder; its parts are those of the guide's several hosts",
    ),
    ("export PACELINE_RUN_ID=slurm-$SLURM_JOB_ID", SLURM),
    (
        "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1) MASTER_PORT=29500",
        SLURM,
    ),
    ("srun COMMAND", SLURM),
    (
        "curl --fail-with-body -F f=@rank-0.json.gz -F f=@rank-1.json.gz 'http://127.0.0.1:8080/api/v1/imports?name=resnet&form=text'",
        "tests/tests/server/uploads.rs sends such forms",
    ),
    ("prometheus --config.file=prometheus.yml --storage.tsdb.path=/tmp/prometheus &", MONITORED),
    (
        "prometheus-alertmanager --config.file=alertmanager.yml --storage.path=/tmp/alertmanager --cluster.listen-address= &",
        MONITORED,
    ),
];
/// Commands that only lead to the next one. Each must be right as a path.
const CHANGE_FOLDER: &str = "cd ";

/// A command in a document.
struct Found {
    place: String,
    command: String,
}

/// Returns the texts of all documents with their names.
fn documents() -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for pattern in DOCUMENTS {
        let count_before = all.len();
        for path in glob::glob(&format!("{ROOT}/{pattern}"))? {
            let path = path?;
            let name = path.strip_prefix(ROOT)?.display().to_string();
            all.push((name, fs::read_to_string(&path)?));
        }
        ensure!(all.len() > count_before, "there is no {pattern}");
    }
    Ok(all)
}

/// Returns the shell blocks of a document: the number of the first line, and the text.
fn blocks(name: &str, text: &str) -> anyhow::Result<Vec<(usize, String)>> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, &mut open) {
            (Some("sh" | "bash" | "console"), None) => open = Some(Some((number + 2, String::new()))),
            (Some(language), None) if OTHER_LANGUAGES.contains(&language) => open = Some(None),
            (Some(language), None) => bail!("{name}:{}: a block in {language:?}", number + 1),
            (Some(_), Some(block)) => {
                blocks.extend(block.take());
                open = None;
            }
            (None, Some(Some((_, text)))) => *text += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    ensure!(open.is_none(), "{name}: the last block has no end");
    Ok(blocks)
}

/// Returns a line without its comment. A number sign within a word is none.
fn strip_comment(line: &str) -> &str {
    let comment =
        line.match_indices('#').find(|(at, _)| line[..*at].ends_with(char::is_whitespace) || *at == 0);
    comment.map_or(line, |(at, _)| &line[..at]).trim()
}

/// Returns all commands: the lines of shell blocks, joined where a backslash ends them.
fn commands() -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    for (name, text) in documents()? {
        for (first, block) in blocks(&name, &text)? {
            let checked = Command::new("bash").args(["-n", "-c", &block]).output()?;
            ensure!(checked.status.success(), "{name}:{first}: {}", said(&checked).1);
            let lines = block.replace("\\\n", " ");
            let lines = lines.lines().map(strip_comment).filter(|line| !line.is_empty());
            found.extend(
                lines.map(|line| Found { place: format!("{name}:{first}"), command: line.to_owned() }),
            );
        }
    }
    Ok(found)
}

/// Returns the arguments that `paceline` gets from a command line, as a shell splits it.
fn words(command: &str) -> anyhow::Result<Vec<String>> {
    let script = format!("set -f; paceline() {{ printf '%s\\0' paceline \"$@\"; }}; {command}");
    let split = Command::new("bash").args(["-c", &script]).output()?;
    let (words, complaint) = said(&split);
    ensure!(split.status.success() && !words.is_empty(), "{complaint}");
    Ok(words.trim_end_matches('\0').split('\0').map(str::to_owned).collect())
}

#[test]
fn every_command_in_a_document_is_run_or_parsed_or_excused() -> anyhow::Result<()> {
    let (found, mut wrong) = (commands()?, Vec::new());
    ensure!(found.len() > 25, "{} commands are too few: the blocks are not found", found.len());
    for Found { place, command } in &found {
        let is_run = [TOKEN, SERVE].iter().chain(&VARIABLES).any(|run| run == command);
        let verdict = if is_run || ELSEWHERE.iter().any(|(known, _)| known == command) {
            Ok(())
        } else if let Some(folder) = command.strip_prefix(CHANGE_FOLDER) {
            let is_there = Path::new(ROOT).join(folder).is_dir();
            is_there.then_some(()).context("there is no such folder")
        } else if command.starts_with("paceline ") {
            words(command).and_then(|words| Ok(Arguments::try_parse_from(words).map(drop)?))
        } else {
            Err(anyhow::anyhow!(
                "this test does not know it: run it here, or say in ELSEWHERE why that is not possible"
            ))
        };
        wrong.extend(verdict.err().map(|error| format!("{place}: {command}\n    {error:#}")));
    }
    let own = ELSEWHERE.map(|(command, _)| command);
    let own = own.iter().chain([TOKEN, SERVE].iter()).chain(&VARIABLES);
    let gone = own.filter(|own| !found.iter().any(|found| found.command == ***own));
    wrong.extend(gone.map(|own| format!("no document has this any more: {own}")));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Returns the `paceline` commands between backticks. They are often shortened, with names for what the reader has.
fn mentioned(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|span| span.starts_with("paceline "))
}

#[test]
fn commands_in_the_text_have_no_option_that_does_not_exist() -> anyhow::Result<()> {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (name, text) in documents()? {
        for mention in mentioned(&text) {
            let full = mention.replace(['[', ']'], "").replace("...", "").replace(" N ", " 2 ");
            let full = full.replace(" URL", " http://127.0.0.1:8080");
            checked += 1;
            // The text may leave out what a command needs. It must not name what the command does not have.
            let excused = [ErrorKind::MissingRequiredArgument, ErrorKind::DisplayHelp];
            match Arguments::try_parse_from(words(&full)?) {
                Err(error) if !excused.contains(&error.kind()) => {
                    wrong.push(format!("{name}: {mention}\n    {error}"));
                }
                _ => {}
            }
        }
    }
    ensure!(checked > 50, "{checked} commands are too few");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn the_guides_token_opens_the_guides_server() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let shell = |script: &str| -> anyhow::Result<String> {
        let output = Command::new("bash").args(["-e", "-c", script]).current_dir(folder.path()).output()?;
        let (printed, complaint) = said(&output);
        ensure!(output.status.success(), "{script}: {complaint}");
        Ok(printed)
    };
    // Most tokens have some of the characters that addresses treat in a special way, and all end in an equals sign.
    for _ in 0..3 {
        shell(TOKEN)?;
        let printed = shell(&format!(
            "{}; printf '%s ' $PACELINE_SERVER $PACELINE_TOKEN $PACELINE_RUN_ID",
            VARIABLES.join("; ")
        ))?;
        let variables: Vec<&str> = printed.split_whitespace().collect();
        let [server, token, run] = variables[..] else { bail!("{printed}") };
        ensure!(server == "http://paceline.example:8080" && token.len() == 44, "{printed}");
        ensure!(wire::ids::RunId::new(run).is_ok(), "{run} is not a run id");

        // The guide's command, but on a free port of this machine and with a data directory of its own.
        let log = folder.path().join("log");
        let mut command = Server::command(&folder.path().join("data"), "127.0.0.1:0");
        let own = words(SERVE)?;
        ensure!(own[1..4] == ["serve", "--listen", "0.0.0.0:8080"], "{own:?}");
        command.args(&own[4..]).current_dir(folder.path()).stderr(fs::File::create(&log)?);
        let server = Server::spawn(command)?;
        let bearer = format!("Bearer {token}");
        ureq::get(format!("{}/api/v1/runs", server.address)).header("authorization", bearer).call()?;
        for shown in [token.to_owned(), token.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")] {
            let cookie = sign_in(&server.address, &shown).context("the token in an address")?;
            ureq::get(format!("{}/api/v1/runs", server.address)).header("cookie", cookie).call()?;
        }
        let said = fs::read_to_string(&log)?;
        ensure!(!said.contains("chmod"), "the guide's file of the token can be read by others: {said}");
        server.kill()?;
    }
    Ok(())
}
