//! Kernels and copies whose times cannot be: one wrong number would otherwise be the length of a step. And kernels that may be
//! collectives, and count as compute.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use timing::activity::may_communicate;

use super::work::{Kind, Work};
use crate::listed::counted;
use crate::remarks::Remarks;

/// How far from the middle half of all work some work may lie, as a multiple of how long that half lasts.
const FAR: i64 = 100;
/// How far it may lie at least, in nanoseconds: a job may pause within a trace.
const FAR_NANOS: i64 = 60_000_000_000;
/// The largest share of the work that is taken for wrong: one in so many. What is more is not wrong but strange.
const ONE_IN: usize = 100;
/// A duration is wrong if the next work on the stream begins within this part of it. Kernels of a graph may overlap on their stream.
const PART: i64 = 100;
/// The shortest duration that is taken for wrong, in nanoseconds.
const LONG_NANOS: i64 = 100_000_000;

/// The largest number of names that a remark lists.
const LISTED: usize = 3;
/// The longest part of a name that a remark has, in bytes.
const LONGEST_NAME: usize = 80;

/// Says which kernels count as compute although their names say that they communicate: they are of no library that is known.
pub(super) fn name_unknown_collectives(work: &[Work], names: &[Box<str>], remarks: &mut Remarks) {
    let mut times: HashMap<u32, u64> = HashMap::new();
    work.iter()
        .filter(|work| work.kind == Kind::Compute)
        .for_each(|work| *times.entry(work.name).or_default() += 1);
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for (number, times) in times {
        let Some(name) = names.get(number as usize).filter(|name| may_communicate(name)) else { continue };
        // Without what it is made for and what it takes, which may be kilobytes.
        let end = name.find(['<', '(']).filter(|&end| end > "void ".len()).unwrap_or(name.len());
        *by_name.entry(&name[..name.floor_char_boundary(end.min(LONGEST_NAME))]).or_default() += times;
    }
    let mut listed: Vec<(&str, u64)> = by_name.into_iter().collect();
    listed.sort_by_key(|&(_, times)| Reverse(times));
    let more = listed.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let listed: Vec<String> = listed
        .iter()
        .take(LISTED)
        .map(|&(name, times)| format!("\"{name}\" ({})", counted(times as usize, "time")))
        .collect();
    if !listed.is_empty() {
        remarks.add(format!(
            "these kernels count as compute, and may be communication by their names, which are of no library that is known: {}{more}",
            listed.join(", ")
        ));
    }
}

/// Leaves out work that ran at a time at which the trace did not, and ends work where the next one on its stream begins, if it seems to
/// last for a multiple of that time. `work` is in order of its begin, and stays so.
pub(super) fn leave_out(work: &mut Vec<Work>, names: &[Box<str>], remarks: &mut Remarks) {
    let name = |work: &Work| names.get(work.name as usize).map_or("", |name| name);
    if let Some((from, to)) = recorded(work) {
        let is_far = |work: &Work| work.begin < from || work.begin > to;
        let far = work.iter().filter(|work| is_far(work)).count();
        if far <= (work.len() / ONE_IN).max(1) {
            work.retain(|work| {
                if is_far(work) {
                    remarks.add(format!(
                        "\"{}\" is left out: its time, {} us, is more than a minute from all else that the file records",
                        name(work),
                        work.begin / 1_000
                    ));
                }
                !is_far(work)
            });
        }
    }
    let mut next: HashMap<i64, i64> = HashMap::new();
    for work in work.iter_mut().rev() {
        let next_begin = next.insert(work.stream, work.begin);
        let long = work.end.saturating_sub(work.begin);
        let Some(next_begin) = next_begin
            .filter(|&next_begin| long > LONG_NANOS && (next_begin - work.begin).saturating_mul(PART) < long)
        else {
            continue;
        };
        remarks.add(format!(
            "\"{}\" at {} us is taken to end where the next work on its stream begins: it says that it lasts {:.3} s",
            name(work),
            work.begin / 1_000,
            long as f64 / 1e9
        ));
        work.end = next_begin;
    }
}

/// Returns the time within which work of the trace lies, with much room on both sides; `None` without work.
fn recorded(work: &[Work]) -> Option<(i64, i64)> {
    let at = |quarters: usize| Some(work.get((work.len().checked_sub(1)?) * quarters / 4)?.begin);
    let (low, high) = (at(1)?, at(3)?);
    let room = high.saturating_sub(low).saturating_mul(FAR).max(FAR_NANOS);
    Some((low.saturating_sub(room), high.saturating_add(room)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1_000;

    fn kernel(begin: i64, long: i64) -> Work {
        let (begin, end) = (begin * US, (begin + long) * US);
        Work { kind: Kind::Compute, begin, end, stream: 7, correlation: 1, name: 0, carried: None }
    }

    fn left(mut work: Vec<Work>) -> (Vec<(i64, i64)>, Vec<String>) {
        let mut remarks = Remarks::default();
        leave_out(&mut work, &["gemm".into()], &mut remarks);
        (work.iter().map(|work| (work.begin / US, work.end / US)).collect(), remarks.sentences())
    }

    #[test]
    fn a_kernel_at_another_time_than_all_others_is_left_out_and_named() {
        let begin = 1_615_207_264_500_000;
        let usual: Vec<Work> = (0..9).map(|at| kernel(begin + at * 500, 400)).collect();
        for wrong in [0, begin + 70_000_000] {
            let mut work = usual.clone();
            work.push(kernel(wrong, 0));
            work.sort_by_key(|work| work.begin);
            let (found, remarks) = left(work);
            assert_eq!((found.len(), remarks.len()), (9, 1));
            assert!(
                remarks[0].starts_with(&format!("\"gemm\" is left out: its time, {wrong} us")),
                "{remarks:?}"
            );
        }
        assert!(left(usual).1.is_empty());
    }

    #[test]
    fn kernels_that_may_be_collectives_are_named_once() {
        let names: [Box<str>; 3] =
            ["gemm".into(), "void x::allreduce_fusion<4>(A<1>)".into(), "nvshmemi_barrier(int)".into()];
        let work: Vec<Work> = [0, 1, 1, 2].map(|name| Work { name, ..kernel(1, 2) }).to_vec();
        let mut remarks = Remarks::default();
        name_unknown_collectives(&work, &names, &mut remarks);
        let [remark] = &remarks.sentences()[..] else { panic!("{remarks:?}") };
        assert!(
            remark.ends_with(r#"known: "void x::allreduce_fusion" (2 times), "nvshmemi_barrier" (1 time)"#),
            "{remark}"
        );
        let copies: Vec<Work> = work.into_iter().map(|work| Work { kind: Kind::Memory, ..work }).collect();
        let mut remarks = Remarks::default();
        name_unknown_collectives(&copies, &names, &mut remarks);
        assert!(remarks.sentences().is_empty(), "{remarks:?}");
    }

    #[test]
    fn a_trace_that_pauses_is_whole() {
        let two =
            (0..9).map(|at| kernel(at * 500, 400)).chain((0..3).map(|at| kernel(90_000_000 + at * 500, 400)));
        let (found, remarks) = left(two.collect());
        assert_eq!((found.len(), remarks.len()), (12, 0), "a quarter of the work is not an error");
    }

    #[test]
    fn a_kernel_that_lasts_beyond_many_others_on_its_stream_ends_where_the_next_one_begins() {
        let mut work: Vec<Work> = (0..9).map(|at| kernel(at * 500, 400)).collect();
        work[3].end = work[3].begin + 3_400_000 * US;
        let (found, remarks) = left(work.clone());
        assert_eq!(found[3], (1_500, 2_000));
        assert!(remarks[0].ends_with("it says that it lasts 3.400 s"), "{remarks:?}");
        // It waits on another stream.
        work[3].stream = 20;
        assert!(left(work).1.is_empty());
    }
}
