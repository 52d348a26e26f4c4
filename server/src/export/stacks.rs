//! Stacks as folded lines, for flame graphs, and as a profile for <https://www.speedscope.app>.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use wire::stacks::{Frame, ThreadRole, ThreadStacks};
use wire::views::RankStacks;

/// Returns one line per stack: the rank, the thread and the frames, outermost first, and the number of samples.
#[must_use]
pub fn folded(ranks: &[RankStacks]) -> String {
    let mut lines = String::new();
    for RankStacks { rank, stacks } in ranks {
        let Some(profile) = stacks.profile() else { continue };
        for thread in &profile.threads {
            for stack in &thread.stacks {
                let _ = write!(lines, "rank {rank};{}", one_word(&title(thread)));
                for frame in stack.frames.iter().filter_map(|at| profile.frames.get(*at as usize)) {
                    let _ = write!(lines, ";{}", one_word(&name(frame)));
                }
                let _ = writeln!(lines, " {}", stack.count);
            }
        }
    }
    lines
}

/// Returns the profile of each rank's threads in one file of speedscope's format.
#[must_use]
pub fn speedscope(ranks: &[RankStacks]) -> Value {
    let mut frames: BTreeMap<&Frame, usize> = BTreeMap::new();
    let mut profiles = Vec::new();
    for RankStacks { rank, stacks } in ranks {
        let Some(profile) = stacks.profile() else { continue };
        for thread in &profile.threads {
            let number = |at: &u32| {
                let frame = profile.frames.get(*at as usize)?;
                let next = frames.len();
                Some(*frames.entry(frame).or_insert(next))
            };
            let mut number = number;
            let samples: Vec<Vec<usize>> = thread
                .stacks
                .iter()
                .map(|stack| stack.frames.iter().filter_map(&mut number).collect())
                .collect();
            let weights: Vec<u64> = thread.stacks.iter().map(|stack| stack.count).collect();
            profiles.push(json!({
                "type": "sampled",
                "name": format!("rank {rank}, {}", title(thread)),
                "unit": "none",
                "startValue": 0,
                "endValue": weights.iter().sum::<u64>(),
                "samples": samples,
                "weights": weights,
            }));
        }
    }
    let mut listed: Vec<(&Frame, usize)> = frames.into_iter().collect();
    listed.sort_by_key(|(_, number)| *number);
    let listed: Vec<Value> = listed
        .iter()
        .map(|(frame, _)| json!({ "name": frame.function, "file": frame.file, "line": frame.line }))
        .collect();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "paceline",
        "shared": { "frames": listed },
        "profiles": profiles,
    })
}

/// Returns what a thread is called.
#[must_use]
pub fn title(thread: &ThreadStacks) -> String {
    match (thread.role, thread.name.as_str()) {
        (ThreadRole::Worker, _) => format!("{} worker processes", thread.processes),
        (role, "") => role.name().to_owned(),
        (role, name) => format!("{} {name}", role.name()),
    }
}

fn name(Frame { function, file, line }: &Frame) -> String {
    if file.is_empty() { function.clone() } else { format!("{function} ({file}:{line})") }
}

/// Replaces the separators of the folded format.
fn one_word(text: &str) -> String {
    text.replace(';', ",")
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;
    use wire::ids::Rank;
    use wire::stacks::{Profile, Stack, Stacks, StacksOutcome};

    use super::*;

    fn ranks() -> Vec<RankStacks> {
        let frame = |function: &str| Frame { function: function.into(), file: "a;b.py".into(), line: 3 };
        let thread = ThreadStacks {
            role: ThreadRole::Worker,
            name: String::new(),
            processes: 2,
            samples: 80,
            stacks: vec![Stack { count: 60, frames: vec![1, 0] }, Stack { count: 5, frames: vec![1] }],
        };
        let profile =
            Profile { frames: vec![frame("decode"), frame("main")], threads: vec![thread], torn: 0 };
        let stacks = |outcome| Stacks { request: 1, from: MonoNanos(0), until: MonoNanos(1), outcome };
        let refused = StacksOutcome::Refused { reason: "not Python".into() };
        vec![
            RankStacks { rank: Rank(0), stacks: stacks(StacksOutcome::Sampled(profile)) },
            RankStacks { rank: Rank(1), stacks: stacks(refused) },
        ]
    }

    #[test]
    fn folded_lines_have_the_outermost_frame_first() {
        assert_eq!(
            folded(&ranks()),
            "rank 0;2 worker processes;main (a,b.py:3);decode (a,b.py:3) 60\n\
             rank 0;2 worker processes;main (a,b.py:3) 5\n"
        );
    }

    #[test]
    fn speedscope_numbers_frames_once_and_weighs_samples() {
        let file = speedscope(&ranks());
        assert_eq!(file["shared"]["frames"].as_array().map(Vec::len), Some(2));
        assert_eq!(file["profiles"][0]["samples"], json!([[0, 1], [0]]));
        assert_eq!(
            (&file["profiles"][0]["weights"], &file["profiles"][0]["endValue"]),
            (&json!([60, 5]), &json!(65))
        );
        assert_eq!(file["profiles"].as_array().map(Vec::len), Some(1));
    }
}
