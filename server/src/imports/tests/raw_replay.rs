//! What a recorded job costs that sleeps, by a replay of the raw traces which shares nothing with the analysis: it knows calls of the host,
//! work of the device and who waits for whom, and neither steps nor phases.
//!
//! Each begin and end depends on what must be before it. The latest of these decides, and stays as far before it as it was; without a
//! change, the replay is therefore what was recorded. Then the sleeps are taken out of their thread.

use std::collections::HashMap;

use serde_json::Value;

use super::recorded::{imported, recorded};

/// How much later than what it waits for something begins at most, in microseconds.
const SOON: i64 = 25;
/// The calls that may wait for the device.
const WAITING: [&str; 5] =
    ["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaFree", "cudaMalloc", "cudaMemcpyAsync"];

/// The begin or the end of a call or of some work.
struct Point {
    at: i64,
    predecessors: Vec<usize>,
    what: What,
    /// What is taken out of the time since the latest point before it.
    less: i64,
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    Other,
    /// The end of a call that waited for the device: its own time is not known.
    Waited,
    /// The end of a collective, after the begins of all ranks.
    Reduced,
}

#[derive(Clone, Copy)]
struct Event<'a> {
    name: &'a str,
    category: &'a str,
    thread: i64,
    stream: i64,
    correlation: i64,
    begin: i64,
    end: i64,
}

fn event(event: &Value) -> Option<Event<'_>> {
    let number = |value: &Value| value.as_i64().unwrap_or(-1);
    let begin = event["ts"].as_i64().filter(|_| event["ph"] == "X")?;
    Some(Event {
        name: event["name"].as_str()?,
        category: event["cat"].as_str()?,
        thread: number(&event["tid"]),
        stream: number(&event["args"]["stream"]),
        correlation: number(&event["args"]["correlation"]),
        begin,
        end: begin + event["dur"].as_i64()?,
    })
}

#[derive(Default)]
struct Replay {
    points: Vec<Point>,
    /// The ends of work of devices.
    ends: Vec<usize>,
    /// Collectives by step and number in it: the begin and the end on each rank.
    collectives: HashMap<(usize, usize), Vec<(usize, usize)>>,
}

impl Replay {
    fn add(&mut self, at: i64, predecessors: Vec<usize>) -> usize {
        self.points.push(Point { at, predecessors, what: What::Other, less: 0 });
        self.points.len() - 1
    }

    /// Adds a rank. Gaps between the calls of a thread get shorter by `sleep` if they are sleeps.
    fn rank(&mut self, events: &[Event<'_>], is_sleep: impl Fn(i64) -> bool, sleep: i64) -> usize {
        let host =
            |name: &str| events.iter().filter(move |event| event.name.starts_with(name)).collect::<Vec<_>>();
        let marks = host("ProfilerStep#");
        let main = marks[0].thread;
        let backward = host("## backward ##");
        let mut calls: Vec<&Event<'_>> =
            events.iter().filter(|event| event.category == "cuda_runtime").collect();
        calls.sort_by_key(|call| (call.begin, -call.end));
        let mut threads: HashMap<i64, Vec<(&Event<'_>, usize, usize)>> = HashMap::new();
        let mut launched: HashMap<i64, usize> = HashMap::new();
        for call in calls {
            let thread = threads.entry(call.thread).or_default();
            if let Some(&(_, begin, _)) = thread.last().filter(|(previous, ..)| call.begin < previous.end) {
                launched.insert(call.correlation, begin);
                continue;
            }
            let begin = self.add(call.begin, Vec::new());
            let end = self.add(call.end, vec![begin]);
            launched.insert(call.correlation, begin);
            thread.push((call, begin, end));
        }
        let mut work: Vec<&Event<'_>> = events.iter().filter(|event| is_work(event)).collect();
        work.sort_by_key(|work| (work.begin, work.end));
        let done = self.work(&work, &launched, &marks);
        let mut sleeps = 0;
        for (&thread, calls) in &threads {
            let others = threads.iter().filter(|(other, _)| **other != thread).flat_map(|(_, calls)| calls);
            let mut others: Vec<(i64, usize)> = others.map(|(call, _, end)| (call.end, *end)).collect();
            others.sort_unstable();
            let busy = busy(events, thread);
            for (at, &(call, begin, end)) in calls.iter().enumerate() {
                let previous = at.checked_sub(1).map(|at| calls[at]);
                let (from, to) = (previous.map_or(i64::MIN, |(call, ..)| call.end), call.begin);
                let is_handed_over = match previous {
                    None => thread != main,
                    Some(_) if to - from <= 200 => false,
                    Some(_) if thread == main => {
                        backward.iter().any(|range| from < range.end && range.end <= to)
                    }
                    Some(_) => busy.windows(2).any(|pair| {
                        pair[0].1 >= from - 1 && pair[1].0 <= to + 1 && pair[1].0 - pair[0].1 > 100
                    }),
                };
                self.points[begin].predecessors.extend(previous.map(|(_, _, end)| end));
                if is_handed_over {
                    self.points[begin].predecessors.extend(newest(&others, to).map(|(_, end)| end));
                } else if previous.is_some() && is_sleep(to - from) {
                    self.points[begin].less = sleep;
                    sleeps += 1;
                }
                let long = call.end - call.begin;
                if let Some((ended, by)) =
                    newest(&done, call.end).filter(|_| WAITING.contains(&call.name) && long > 50)
                    && ended >= call.begin
                    && call.end - ended < (long / 2).max(80)
                {
                    self.points[end].predecessors.push(by);
                    self.points[end].what = What::Waited;
                }
            }
        }
        sleeps
    }

    /// Adds the work of a device. Returns when each ended, in order.
    fn work(
        &mut self,
        work: &[&Event<'_>],
        launched: &HashMap<i64, usize>,
        marks: &[&Event<'_>],
    ) -> Vec<(i64, usize)> {
        let (mut on_stream, mut counted) = (HashMap::new(), HashMap::new());
        let mut done: Vec<(i64, usize)> = Vec::new();
        for event in work {
            let mut predecessors: Vec<usize> =
                launched.get(&event.correlation).copied().into_iter().collect();
            predecessors.extend(on_stream.get(&event.stream).copied());
            predecessors.retain(|&point| self.points[point].at <= event.begin + 100);
            let latest = predecessors.iter().map(|&point| self.points[point].at).max();
            if latest.is_none_or(|latest| event.begin - latest > SOON) {
                let soon = newest(&done, event.begin).filter(|(ended, _)| event.begin - ended <= SOON);
                predecessors.extend(soon.map(|(_, point)| point));
            }
            let begin = self.add(event.begin, predecessors);
            let end = self.add(event.end, vec![begin]);
            if event.name.contains("nccl") {
                let issued =
                    launched.get(&event.correlation).map_or(event.begin, |&point| self.points[point].at);
                let step = marks.iter().filter(|mark| mark.begin <= issued).count();
                let number = counted.entry(step).or_insert(0_usize);
                self.collectives.entry((step, *number)).or_default().push((begin, end));
                *number += 1;
            }
            on_stream.insert(event.stream, end);
            let place = done.partition_point(|(ended, _)| *ended <= event.end);
            done.insert(place, (event.end, end));
            self.ends.push(end);
        }
        done
    }

    /// Lets the collectives of all ranks wait for each other.
    fn meet(&mut self, ranks: usize) {
        for members in
            std::mem::take(&mut self.collectives).into_values().filter(|members| members.len() == ranks)
        {
            let begins: Vec<usize> = members.iter().map(|&(begin, _)| begin).collect();
            for (_, end) in members {
                self.points[end].predecessors.clone_from(&begins);
                self.points[end].what = What::Reduced;
            }
        }
    }

    /// Returns when the last work of any device ends, with the sleeps or without.
    fn end(&self, with_sleeps: bool) -> i64 {
        let mut order: Vec<usize> = (0..self.points.len()).collect();
        order.sort_by_key(|&at| self.points[at].at);
        let mut now: Vec<i64> = self.points.iter().map(|point| point.at).collect();
        // A kernel may begin before the call that launches it, by the clocks of both.
        for _ in 0..60 {
            let settled = now.clone();
            order.iter().for_each(|&at| now[at] = self.when(at, &now, with_sleeps));
            if now == settled {
                return self.ends.iter().map(|&end| now[end]).max().unwrap_or(0);
            }
        }
        panic!("the replay does not settle");
    }

    fn when(&self, at: usize, now: &[i64], with_sleeps: bool) -> i64 {
        let point = &self.points[at];
        let Some(&latest) = point.predecessors.iter().max_by_key(|&&predecessor| self.points[predecessor].at)
        else {
            return point.at;
        };
        let since_latest = point.at - self.points[latest].at;
        let delay = |predecessor: usize| match point.what {
            _ if predecessor == latest => since_latest - if with_sleeps { 0 } else { point.less },
            What::Reduced => since_latest,
            What::Waited => 5.min(point.at - self.points[predecessor].at),
            What::Other => 0.min(point.at - self.points[predecessor].at),
        };
        point
            .predecessors
            .iter()
            .map(|&predecessor| now[predecessor] + delay(predecessor))
            .max()
            .unwrap_or(point.at)
    }
}

fn is_work(event: &Event<'_>) -> bool {
    ["kernel", "gpu_memcpy", "gpu_memset"].contains(&event.category)
}

fn newest(sorted: &[(i64, usize)], time: i64) -> Option<(i64, usize)> {
    sorted[..sorted.partition_point(|(at, _)| *at <= time)].last().copied()
}

/// Returns when a thread runs operators or ranges, in order and joined.
fn busy(events: &[Event<'_>], thread: i64) -> Vec<(i64, i64)> {
    let is_host = |event: &&Event<'_>| {
        ["cpu_op", "user_annotation"].contains(&event.category) && event.thread == thread
    };
    let is_long =
        |event: &&Event<'_>| event.name.starts_with("ProfilerStep#") || event.name == "## backward ##";
    let mut all: Vec<(i64, i64)> = events
        .iter()
        .filter(is_host)
        .filter(|event| !is_long(event))
        .map(|event| (event.begin, event.end))
        .collect();
    all.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (begin, end) in all {
        match joined.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

#[test]
fn sleeps_that_are_hidden_cost_what_a_replay_of_the_raw_traces_says() {
    let Some(files) = recorded("traces/torchrec_a2a_opt2_runB") else { return };
    let report = imported(&files);
    let latest = report.last_ranks.first().expect("a rank is last");
    let mut replay = Replay::default();
    for (rank, (_, content)) in files.iter().enumerate() {
        let trace: Value = serde_json::from_slice(content).expect("a trace is JSON");
        let events: Vec<Event<'_>> =
            trace["traceEvents"].as_array().expect("a list").iter().filter_map(event).collect();
        let sleeps_here = rank == latest.rank.0 as usize;
        let sleeps = replay.rank(&events, |gap| sleeps_here && (20_000..20_600).contains(&gap), 20_100);
        assert_eq!(sleeps, if sleeps_here { 6 } else { 0 }, "sleeps of rank {rank}");
    }
    replay.meet(files.len());
    let recorded_end = replay.ends.iter().map(|&end| replay.points[end].at).max();
    assert_eq!(Some(replay.end(true)), recorded_end, "with nothing changed, the replay is what was recorded");
    let saved = (replay.end(true) - replay.end(false)) as f64 * 1e3;
    let finding = report
        .verdicts
        .iter()
        .chain(&report.notes)
        .find(|verdict| verdict.culprit == Some(wire::views::Culprit::Rank(latest.rank.0)));
    let lost = finding.map_or(0, wire::views::Verdict::lost_nanos) as f64;
    let run = report.period_nanos.value().expect("a period") * report.steps as f64;
    assert!(
        (lost - saved).abs() < 0.005 * run,
        "{lost} ns are said to be lost, and a replay saves {saved} ns of {run}"
    );
    // Six sleeps of 20.1 ms. Most of that time costs nothing.
    assert!(saved < 0.2 * 6.0 * 20.1e6, "{saved} ns");
    let sentence = &finding.expect("a note").sentence;
    assert!(sentence.contains("the rest of that costs nothing"), "{sentence}");
}
