//! Files of formats other than the profiler's, from the file to the records of a job.
//!
//! `dumps/` has what PyTorch 2.15 wrote in a gloo job of four ranks, in which rank 2 did not issue the fourth all-reduce.

use std::path::Path;

use import::job::{self, Job, NotAJob};
use import::{Format, Source, Unreadable, read};
use wire::batch::Batch;
use wire::codec;
use wire::event::{BucketRecord, Event, Function, Source as Measured, SpanKind};
use wire::ids::RunId;

fn file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)).unwrap()
}

fn dump(rank: u32) -> Source {
    read(&format!("nccl_trace_rank_{rank}"), &file(&format!("dumps/nccl_trace_rank_{rank}"))[..]).unwrap()
}

/// A dump of the corpus, changed, of a rank.
fn nccl(rank: u32, change: impl Fn(String) -> String) -> Source {
    let text = String::from_utf8(file("corpus/flight-recorder-nccl.json")).unwrap();
    read(&format!("fr_{rank}"), change(text).as_bytes()).unwrap()
}

fn join(sources: Vec<Source>) -> Result<Job, NotAJob> {
    job::join(&RunId::new("one").unwrap(), "one", sources)
}

fn batches(job: &Job) -> impl Iterator<Item = Batch> {
    job.rounds.iter().flatten().map(|frame| codec::decode(frame).unwrap())
}

/// Returns the records of a rank.
fn records(job: &Job, rank: u32) -> impl Iterator<Item = Event> {
    batches(job).filter(move |batch| batch.rank.0 == rank).flat_map(|batch| batch.events)
}

fn buckets(job: &Job, rank: u32) -> Vec<BucketRecord> {
    let bucket = |event| if let Event::Bucket(bucket) = event { Some(bucket) } else { None };
    records(job, rank).filter_map(bucket).collect()
}

fn says(job: &Job, sentence: &str) -> bool {
    job.remarks.iter().any(|remark| remark == sentence)
}

#[test]
fn dumps_of_a_hang_name_the_rank_that_is_behind() {
    let job = join([3, 1, 2, 0].map(dump).to_vec()).unwrap();
    let sentence = "in group 0 (default_pg), ranks 0-1, 3 have issued collective 4 (all_reduce), and it has not ended; one rank is behind: \
                  rank 2 has issued 3 and none after it";
    assert_eq!(job.remarks[0], sentence);
    assert_eq!((job.world_size, job.ranks.len()), (4, 4));
    // Rank 3 slept before each all-reduce.
    let late = "in group 0 (default_pg), rank 3 issued 3 of 3 collectives last";
    assert!(job.remarks.iter().any(|remark| remark.starts_with(late)), "{:#?}", job.remarks);
    let all: Vec<BucketRecord> = (0..4).flat_map(|rank| buckets(&job, rank)).collect();
    assert_eq!(all.len(), 7 + 7 + 3 + 4);
    let is_only_issued =
        |bucket: &BucketRecord| bucket.source == Measured::Derived && bucket.start == bucket.end;
    assert!(all.iter().all(is_only_issued), "a time of issuing is not a time of running");
}

#[test]
fn json_and_pickle_of_one_dump_say_the_same() {
    let pickle = join(vec![dump(0)]).unwrap();
    let json = join(vec![read("rank_0", &file("corpus/flight-recorder-gloo.json")[..]).unwrap()]).unwrap();
    let numbers = |job: &Job| {
        buckets(job, 0).iter().map(|bucket| (bucket.comm, bucket.seq, bucket.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&pickle), numbers(&json));
    assert_eq!(buckets(&pickle, 0)[0].bytes, 4_000);
}

#[test]
fn a_rank_without_a_dump_is_said() {
    let job = join(vec![dump(2), dump(3)]).unwrap();
    assert_eq!(job.missing(), 2);
    assert!(says(&job, "nothing says what ranks 0-1 did: there is no dump of them"), "{:#?}", job.remarks);
}

#[test]
fn collectives_that_differ_among_ranks_are_named() {
    let as_is = |text: String| text;
    let smaller = |text: String| text.replacen("[[1000, 2]]", "[[900, 2]]", 1);
    let job = join(vec![nccl(0, as_is), nccl(1, smaller)]).unwrap();
    assert_eq!(
        job.remarks[0],
        "in group 0 (default_pg), collective 1 differs among ranks: all_reduce of 2000 BFloat16 elements on rank 0; \
         all_reduce of 1800 BFloat16 elements on rank 1"
    );
    let other = |text: String| text.replacen("nccl:broadcast", "nccl:reduce", 1);
    let job = join(vec![nccl(0, as_is), nccl(1, other)]).unwrap();
    assert!(
        job.remarks[0].contains("collective 4 differs among ranks: broadcast of 2000"),
        "{:#?}",
        job.remarks
    );
    let waiting = |text: String| text.replace("\"state\": \"started\"", "\"state\": \"scheduled\"");
    let job = join(vec![nccl(0, as_is), nccl(1, waiting)]).unwrap();
    assert!(
        says(
            &job,
            "in group 0 (default_pg), collective 5 (all_reduce) is the first that is open: started and not ended on rank 0; \
             issued and not started on rank 1"
        ),
        "{:#?}",
        job.remarks
    );
}

#[test]
fn durations_of_the_device_say_who_came_late() {
    // The second rank takes 1 ms less for the first all-reduce.
    let shorter = |text: String| text.replacen("\"duration_ms\": 1.25", "\"duration_ms\": 0.25", 1);
    let job = join(vec![nccl(0, |text| text), nccl(1, shorter)]).unwrap();
    let (first, second) = (buckets(&job, 0), buckets(&job, 1));
    assert_eq!(first.len(), 3, "those that end and wait for all ranks");
    assert_eq!((first[0].seq, first[0].source), (Function::AllReduce.numbered(1), Measured::DeviceEvent));
    assert_eq!(second[0].start - first[0].start, 1_000_000);
    assert_eq!((first[0].end, first[2].bytes), (second[0].end, 4_000));
    let unclear = batches(&job)
        .flat_map(|batch| batch.events)
        .filter(|event| matches!(event, Event::Span(span) if span.kind == SpanKind::Unclear));
    assert_eq!(unclear.count(), 6, "nothing shows what the ranks compute meanwhile");
}

#[test]
fn a_log_of_nccl_inspector_gives_durations_or_times() {
    let log = String::from_utf8(file("corpus/inspector.jsonl")).unwrap();
    let recording = |rank: u32| {
        let text = log.replace("\"rank\": 1,", &format!("\"rank\": {rank},"));
        read("host-pid7.log", text.as_bytes()).unwrap()
    };
    let job = join(vec![recording(0), recording(1)]).unwrap();
    let found = buckets(&job, 1);
    assert_eq!((job.world_size, found.len(), found[0].source), (2, 4, Measured::DeviceEvent));
    let first = found.iter().find(|bucket| bucket.seq == Function::AllReduce.numbered(3)).unwrap();
    assert_eq!((first.end - first.start, first.bytes), (500_000, 4_194_304));
    let verbose = read("host-pid7.log", &file("corpus/inspector-verbose.jsonl")[..]).unwrap();
    let found = buckets(&join(vec![verbose]).unwrap(), 1);
    let first = found[0];
    assert_eq!((first.source, first.end - first.start), (Measured::HostClock, 501_000), "over both channels");
    assert_eq!(first.start - first.launch, 39_000);
}

#[test]
fn a_table_of_stragglers_gives_all_ranks_of_the_job() {
    let source = read("trace.parquet", &file("corpus/stragglers.parquet")[..]).unwrap();
    assert_eq!((source.format, source.ranks.len()), (Format::Stragglers, 4));
    let job = join(vec![source]).unwrap();
    assert_eq!(job.ranks[3].steps, [20, 23, 24]);
    assert!(
        job.ranks[0].remarks.iter().any(|remark| remark.contains("(0, 4, 8, 12)")),
        "{:?}",
        job.ranks[0].remarks
    );
    let reduced = |rank: u32| {
        let mut rank_buckets = buckets(&job, rank).into_iter();
        rank_buckets.find(|bucket| Function::from_seq(bucket.seq) == Function::ReduceScatter).unwrap()
    };
    let messages = |rank: u32| {
        let is_message = |bucket: &BucketRecord| Function::from_seq(bucket.seq) == Function::SendReceive;
        buckets(&job, rank)
            .into_iter()
            .filter(is_message)
            .map(|bucket| (bucket.comm, bucket.seq))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (messages(0), messages(1).len()),
        (messages(2), 3),
        "a send of the first stage is a receive of the second"
    );
    assert_ne!(messages(0), messages(1), "of other data-parallel ranks");
    let (on_time, late) = (reduced(2), reduced(3));
    assert_eq!((buckets(&job, 2).len(), on_time.comm, on_time.seq), (9, late.comm, late.seq));
    assert_ne!(on_time.comm, reduced(0).comm, "another stage");
    let delay = late.start - on_time.start;
    assert!(
        (delay - 300_000_000).abs() < 1_000,
        "{delay} ns instead of 0.3 s, to the resolution of the file"
    );
    assert_eq!(late.ready, late.start, "the end of backward");
}

fn horovod(name: &str) -> Job {
    let source = read("timeline.json", &file(&format!("corpus/{name}"))[..]).unwrap();
    assert_eq!(source.format, Format::Horovod);
    join(vec![source]).unwrap()
}

/// Returns true if a rank of the job has a remark with this text.
fn remarks_on(job: &Job, rank: usize, text: &str) -> bool {
    job.ranks[rank].remarks.iter().any(|remark| remark.contains(text))
}

#[test]
fn a_timeline_of_horovod_says_which_rank_was_late() {
    let job = horovod("horovod.json");
    assert_eq!((job.world_size, job.ranks.len()), (3, 3));
    assert_eq!(job.ranks[2].steps, [0, 1, 2]);
    let (on_time, late) = (buckets(&job, 1), buckets(&job, 2));
    assert_eq!((on_time.len(), late.len()), (6, 6), "those of steps, and fused tensors as one");
    let step_buckets: Vec<BucketRecord> = late.iter().filter(|bucket| bucket.step.0 == 1).copied().collect();
    let functions: Vec<Function> = step_buckets.iter().map(|bucket| Function::from_seq(bucket.seq)).collect();
    assert_eq!(functions, [Function::AllReduce, Function::AllGather]);
    assert_eq!((step_buckets[0].bytes, step_buckets[1].bytes), (4 * (16 * 8 + 8), 4 * 30 * 4 / 3));
    for (early, late) in on_time.iter().zip(&late) {
        assert_eq!((early.comm, early.seq, early.end), (late.comm, late.seq, late.end));
        // The second tensor of the fused ones is ready a millisecond after the first one.
        let delay = if Function::from_seq(late.seq) == Function::AllReduce { 3_000_000 } else { 4_000_000 };
        assert_eq!((late.start - early.start, late.ready), (delay, late.start));
        assert_eq!(late.source, Measured::HostClock);
    }
    let begins: Vec<i64> = buckets(&job, 0).iter().map(|bucket| bucket.start.0).collect();
    assert_eq!(
        begins,
        on_time.iter().map(|bucket| bucket.start.0).collect::<Vec<_>>(),
        "noticed in one cycle"
    );
    assert_eq!(begins[0], 1_703_022_288_183_792_000 + 11_000_000);
    for remark in [
        "3 collectives of process sets",
        "1 collective before the first step",
        "1 collective after the last whole step",
        "of about 1.1 ms",
    ] {
        assert!(remarks_on(&job, 0, remark), "{remark}: {:#?}", job.ranks[0].remarks);
    }
}

#[test]
fn a_timeline_of_a_killed_job_says_which_rank_it_waited_for() {
    let job = horovod("horovod-killed.json");
    assert_eq!((job.world_size, job.ranks[0].collectives), (4, 6));
    assert_eq!(job.ranks[0].steps, [2, 3], "two whole steps, beyond the warm-up");
    let waited = "2 tensors waited for ranks: for tower/grad_1, the first of them, ranks 0, 2-3 were ready, and rank 1 not";
    assert!(remarks_on(&job, 3, waited), "{:#?}", job.ranks[3].remarks);
    let last = buckets(&job, 1).last().copied().unwrap();
    let first = buckets(&job, 0).last().copied().unwrap();
    // Cycles begin 5 ms apart, and the last rank is two cycles later than the first one.
    assert!((last.start - first.start - 10_000_000).abs() < 10_000);
    let probe = batches(&job).find(|batch| batch.rank.0 == 1).unwrap().probes[1];
    let doubt = probe.received - probe.sent;
    assert!(
        (4_990_000..5_020_000).contains(&doubt),
        "{doubt} ns: a time may be off by half a cycle either way"
    );
}

#[test]
fn a_timeline_of_cached_responses_is_one_of_rank_0() {
    let job = horovod("horovod-cached.json");
    assert_eq!((job.world_size, job.ranks.len(), job.missing()), (2, 1, 1));
    assert!(remarks_on(&job, 0, "for 6 of 8 collectives"), "{:#?}", job.ranks[0].remarks);
    assert!(remarks_on(&job, 0, "HOROVOD_CACHE_CAPACITY=0"));
    assert!(remarks_on(&job, 0, "it took 1.5 ms in the median"));
    let found = buckets(&job, 0);
    assert_eq!((found.len(), found[0].bytes), (8, 1_024));
    assert_eq!(found[0].end - found[0].start, 408_000, "what rank 0 ran");
    assert_eq!(found[0].ready, found[0].start);
}

fn spans(job: &Job, rank: u32, kind: SpanKind) -> Vec<i64> {
    let matching = |event| match event {
        Event::Span(span) if span.kind == kind => Some(span.end - span.begin),
        _ => None,
    };
    records(job, rank).filter_map(matching).collect()
}

#[test]
fn an_execution_trace_with_the_profilers_times_is_a_trace() {
    let source = read("et_plus.1.json", &file("corpus/execution-linked.json")[..]).unwrap();
    assert_eq!(source.format, Format::Execution);
    let job = join(vec![source]).unwrap();
    assert_eq!(
        (job.ranks[0].rank, job.world_size),
        (1, 2),
        "the name of the file, and the groups that it lists"
    );
    let [reduced] = buckets(&job, 1)[..] else { panic!("one collective") };
    assert_eq!((Function::from_seq(reduced.seq), reduced.bytes), (Function::AllReduce, 4 * 53_120));
    assert_eq!((reduced.comm.0, reduced.source), (0, Measured::ActivityRecord));
    assert_eq!((reduced.start.0, reduced.end.0), (1_410_000, 1_610_000));
    assert_eq!(reduced.ready.0, 1_400_000, "the end of the kernel before it");
    assert_eq!(spans(&job, 1, SpanKind::Forward), [100_000]);
    assert_eq!(spans(&job, 1, SpanKind::Backward), [80_000]);
    assert_eq!(spans(&job, 1, SpanKind::Optimizer), [30_000]);
    assert_eq!(spans(&job, 1, SpanKind::H2d), [4_500]);
}

#[test]
fn a_trace_of_chakra_has_what_ran_on_the_device() {
    let text = file("corpus/execution.0.et");
    let recording = |rank: u32| read(&format!("resnet.{rank}.et"), &text[..]).unwrap();
    let job = join(vec![recording(1), recording(0)]).unwrap();
    assert_eq!((job.world_size, job.ranks[1].kernels), (2, 3));
    let found = buckets(&job, 1);
    let functions: Vec<Function> = found.iter().map(|bucket| Function::from_seq(bucket.seq)).collect();
    assert_eq!(functions, [Function::AllReduce, Function::SendReceive]);
    assert_eq!((found[0].bytes, found[0].end - found[0].start), (212_480, 300_000));
    assert_ne!(found[0].comm, found[1].comm);
    assert_eq!(spans(&job, 1, SpanKind::Forward), [400_000], "and nothing that the host did");
}

#[test]
fn execution_traces_without_times_say_what_to_import() {
    let linked = String::from_utf8(file("corpus/execution-linked.json")).unwrap();
    let error = |text: String| read("x", text.as_bytes()).unwrap_err().to_string();
    for incomplete in [linked.replace("\"ts\"", "\"t\""), linked.replace("\"cat\"", "\"c\"")] {
        assert!(error(incomplete).contains("chakra_trace_link"));
    }
}

#[test]
fn formats_are_not_mixed() {
    let log = read("a.log", &file("corpus/inspector.jsonl")[..]).unwrap();
    let error = join(vec![dump(0), log]).unwrap_err().to_string();
    assert_eq!(
        error,
        "nccl_trace_rank_0 is a dump of PyTorch's flight recorder, and a.log is a log of NCCL Inspector: import files of one format at a \
         time"
    );
}

#[test]
fn unusable_files_say_why() {
    let error = |bytes: &[u8]| read("x", bytes).unwrap_err().to_string();
    let whole = file("dumps/nccl_trace_rank_0");
    assert!(error(&whole[..700]).contains("ends early, at byte 700"), "{}", error(&whole[..700]));
    assert!(error(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.").contains("never done"));
    let old = br#"{"version": "1.5", "entries": [], "pg_config": {}}"#;
    assert!(error(old).contains("its version is 1.5"), "{}", error(old));
    assert!(error(br#"{"version": "2.10", "entries": [], "pg_config": {}}"#).contains("no collective"));
    assert!(error(&file("corpus/stragglers.parquet")[..900]).contains("a table of StragglerAnalysis"));
    assert!(matches!(read("x", &b"{\"nodes\": [], \"schema\": \"1\"}"[..]), Err(Unreadable::Unsupported(_))));
}
