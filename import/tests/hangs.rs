//! Hangs that dumps of the flight recorder show, and what the batches of the job say of them.

use import::job::{self, Job};
use import::{Unreadable, read};
use wire::batch::{Bye, Note};
use wire::codec;
use wire::ids::RunId;

/// A group: its name, how the job describes it, and its ranks.
type Named = (u32, &'static str, &'static [u32]);

/// A dump of a rank in groups of these names, descriptions and ranks. `counted` has the number of the last collective that it issued and
/// that ended, by group; `held` the groups and numbers of those that the dump holds, which have not ended.
fn dump(groups: &[Named], counted: &[(u32, i64, i64)], held: &[(u32, u64)]) -> String {
    let described = |group_name: u32| {
        groups.iter().find(|(name, ..)| *name == group_name).map_or("", |(_, described, _)| described)
    };
    let group = |(name, described, ranks): &Named| {
        format!(r#""{name}": {{"name": "{name}", "desc": "{described}", "ranks": "{ranks:?}"}}"#)
    };
    let status = |(number, issued, ended): &(u32, i64, i64)| {
        format!(
            r#""{number}": {{"last_enqueued_collective": {issued}, "last_started_collective": -1, "last_completed_collective": {ended}}}"#
        )
    };
    let entry = |(group_name, number): &(u32, u64)| {
        format!(
            r#"{{"process_group": ["{group_name}", "{}"], "collective_seq_id": {number}, "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1700000000000000000, "input_sizes": [[8]], "input_dtypes": ["Float"], "state": "scheduled"}}"#,
            described(*group_name)
        )
    };
    let list = |parts: Vec<String>| parts.join(", ");
    format!(
        r#"{{"version": "2.9", "pg_config": {{{}}}, "pg_status": {{{}}}, "entries": [{}]}}"#,
        list(groups.iter().map(group).collect()),
        list(counted.iter().map(status).collect()),
        list(held.iter().map(entry).collect())
    )
}

fn joined(dumps: &[String]) -> Job {
    let source =
        |(rank, dump): (usize, &String)| read(&format!("nccl_trace_rank_{rank}"), dump.as_bytes()).unwrap();
    job::join(&RunId::new("one").unwrap(), "one", dumps.iter().enumerate().map(source).collect()).unwrap()
}

/// Returns the last message of each rank.
fn goodbyes(job: &Job) -> Vec<Bye> {
    let batches = job.rounds.iter().flatten().map(|frame| codec::decode(frame).unwrap());
    let mut byes: Vec<(u32, Bye)> = batches
        .flat_map(|batch| batch.notes.into_iter().map(move |note| (batch.rank.0, note)))
        .filter_map(|(rank, note)| if let Note::Bye(bye) = note { Some((rank, bye)) } else { None })
        .collect();
    byes.sort_by_key(|(rank, _)| *rank);
    byes.into_iter().map(|(_, bye)| bye).collect()
}

/// Returns the ranks that say why the job hung, and what they say.
fn speakers(job: &Job) -> (Vec<usize>, String) {
    let byes = goodbyes(job);
    assert!(
        byes.iter().all(|bye| !bye.completed),
        "no rank of a job that hung has completed its work: {byes:?}"
    );
    let speaks = |(rank, bye): (usize, &Bye)| (!bye.reason.is_empty()).then_some(rank);
    let said = byes.iter().map(|bye| bye.reason.clone()).find(|reason| !reason.is_empty());
    (byes.iter().enumerate().filter_map(speaks).collect(), said.unwrap_or_default())
}

const WORLD: Named = (0, "default_pg", &[0, 1, 2, 3]);

#[test]
fn a_dump_without_entries_says_how_far_its_rank_came() {
    for behind in 0..4 {
        let dump_of = |rank| match rank == behind {
            true => dump(&[WORLD], &[(0, 40, 40)], &[]),
            false => dump(&[WORLD], &[(0, 42, 40)], &[(0, 41), (0, 42)]),
        };
        let job = joined(&(0..4).map(dump_of).collect::<Vec<_>>());
        let end = format!("one rank is behind: rank {behind} has issued 40 and none after it");
        assert!(job.remarks[0].ends_with(&end), "{:#?}", job.remarks);
        assert_eq!(job.missing(), 0);
        assert!(
            !job.remarks.iter().any(|remark| remark.contains("no dump") || remark.contains("last")),
            "{:#?}",
            job.remarks
        );
        let (speakers, said) = speakers(&job);
        assert_eq!(speakers, [behind]);
        assert!(
            said.starts_with("In group 0 (default_pg), ranks ") && said.ends_with("none after it."),
            "{said}"
        );
    }
}

/// The numbers of groups in `pg_status` are those of the process, which has no group 1 or 2.
#[test]
fn groups_are_counted_in_the_order_in_which_they_were_made() {
    let pair: Named = (35, "TENSOR", &[0, 1]);
    let other: Named = (36, "TENSOR", &[2, 3]);
    let waits = |group: Named| dump(&[WORLD, group], &[(0, 7, 7), (5, 91, 90)], &[(group.0, 91)]);
    let lagging = |group: Named| dump(&[WORLD, group], &[(0, 7, 7), (5, 88, 88)], &[]);
    let job = joined(&[waits(pair), lagging(pair), lagging(other), waits(other)]);
    let (speakers, said) = speakers(&job);
    assert_eq!(speakers, [1, 2], "{:#?}", job.remarks);
    assert!(
        said.ends_with("rank 1 has issued 88 and none after it; in other groups, rank 2 is behind as well."),
        "{said}"
    );
}

/// Rank 1 waits in the group of ranks 1 and 2 for rank 2, and therefore has not issued what rank 0 waits for.
#[test]
fn a_rank_that_waits_itself_is_not_the_one_that_others_wait_for() {
    let (first, second): (Named, Named) = ((1, "a", &[0, 1]), (2, "b", &[1, 2]));
    let dumps = [
        dump(&[first], &[(1, 9, 8)], &[(1, 9)]),
        dump(&[first, second], &[(1, 8, 8), (2, 5, 4)], &[(2, 5)]),
        dump(&[second], &[(2, 4, 4)], &[]),
    ];
    assert_eq!(speakers(&joined(&dumps)).0, [2]);
}

#[test]
fn a_job_that_did_not_hang_has_completed_its_work() {
    let ended = |_| dump(&[WORLD], &[(0, 42, 42)], &[(0, 42)]).replace("scheduled", "completed");
    let job = joined(&(0..4).map(ended).collect::<Vec<_>>());
    assert!(goodbyes(&job).iter().all(|bye| bye.completed && bye.reason.is_empty()));
    // Which rank is behind does not show if all wait in one collective.
    let job = joined(&(0..4).map(|_| dump(&[WORLD], &[(0, 42, 41)], &[(0, 42)])).collect::<Vec<_>>());
    assert_eq!(speakers(&job).0, [0, 1, 2, 3]);
}

#[test]
fn a_dump_that_neither_holds_nor_counts_a_collective_is_refused() {
    let empty = dump(&[WORLD], &[(0, -1, -1)], &[]);
    assert!(matches!(read("nccl_trace_rank_0", empty.as_bytes()), Err(Unreadable::NoCollective(_))));
    let job = joined(&[dump(&[WORLD], &[(0, 3, 3)], &[])]);
    assert!(job.remarks[0].starts_with("no dump holds a collective"), "{:#?}", job.remarks);
}
