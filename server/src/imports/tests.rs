//! What a run is named, and what an import says of its files. What imported runs say is in the modules below.

mod judged;
mod raw_replay;
mod recorded;

use super::*;

#[test]
fn a_run_is_named_after_what_its_files_have_in_common() {
    for (files, name) in [
        (&["resnet-3.json"][..], "resnet-3"),
        (&["resnet-rank-0.json", "resnet-rank-1.json"], "resnet-rank"),
        (&["host_90.1000.pt.trace.json.gz", "host_89.1001.pt.trace.json.gz"], "host"),
        (&["0.json", "1.json"], "imported"),
        (&["größe1.json", "größte.json"], "größ"),
        (&[".json"], "imported"),
        (&[], "imported"),
    ] {
        assert_eq!(name_of(files), name, "{files:?}");
    }
}

#[test]
fn an_error_lists_the_first_reasons() {
    let mut files = Files::default();
    for number in 0..7 {
        files.add(&format!("{number}.json"), import::read("", &b"{}"[..]));
    }
    assert_eq!((files.count(), files.held()), (7, 0));
    let error = files.join(&RunId::new("a").unwrap(), "a").unwrap_err().to_string();
    assert!(error.starts_with("none of the 7 files can be imported: 0.json: it has no list of"), "{error}");
    assert!(error.ends_with("; and 2 more") && !error.contains("5.json"), "{error}");
}

#[test]
fn a_remark_on_some_ranks_names_them_and_one_on_all_does_not() {
    let rank = |rank, file: &str, remarks: &[&str]| ImportedRank {
        rank,
        file: file.into(),
        steps: Vec::new(),
        kernels: 0,
        collectives: 0,
        remarks: remarks.iter().map(|&remark| remark.to_owned()).collect(),
    };
    let ranks =
        [rank(0, "a", &["all"]), rank(1, "b", &["some", "all"]), rank(2, "c", &["all", "some", "one"])];
    assert_eq!(remarks_with_ranks(&ranks), ["all", "ranks 1, 2: some", "rank 2 (c): one"]);
}
