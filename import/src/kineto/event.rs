//! One event, as it is written.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use wire::event::Function;

use crate::group::Group;
use crate::number::{nanos, whole};
use crate::torch;

/// An event as it is written. Numbers are kept as texts, because a double cannot hold the times.
#[derive(Deserialize)]
pub(super) struct Written<'a> {
    #[serde(borrow, default)]
    pub(super) ph: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) cat: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pid: Option<&'a RawValue>,
    #[serde(borrow)]
    tid: Option<&'a RawValue>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
}

impl<'a> Written<'a> {
    /// Returns the process and the thread, as they are written: numbers in some traces, texts in others.
    pub(super) fn thread(&self) -> (&str, &str) {
        let written = |id: Option<&'a RawValue>| id.map_or("", RawValue::get);
        (written(self.pid), written(self.tid))
    }

    /// Returns the stream whose row the event is in, as the oldest releases write it: `stream 7`.
    pub(super) fn stream(&self) -> Option<i64> {
        self.tid?.get().trim_matches('"').strip_prefix("stream ")?.parse().ok()
    }

    /// Returns the begin and the end in nanoseconds; `None` if they are not numbers.
    pub(super) fn times(&self) -> Option<(i64, i64)> {
        // torch_npu writes numbers as texts.
        let read = |written: &RawValue| nanos(written.get().trim_matches('"'));
        let begin = read(self.ts?)?;
        let long = self.dur.map_or(Some(0), read)?;
        Some((begin, begin.checked_add(long.max(0))?))
    }
}

/// The arguments that count.
#[derive(Default, Deserialize)]
pub(super) struct Arguments<'a> {
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    correlation: Option<&'a RawValue>,
    #[serde(borrow, rename = "Collective name")]
    collective: Option<&'a RawValue>,
    #[serde(borrow, rename = "In msg nelems")]
    elements: Option<&'a RawValue>,
    #[serde(borrow, rename = "dtype")]
    element_type: Option<&'a RawValue>,
    #[serde(borrow, rename = "Group size")]
    group_size: Option<&'a RawValue>,
    #[serde(borrow, rename = "Process Group Name")]
    group_name: Option<&'a RawValue>,
    #[serde(borrow, rename = "Process Group Ranks")]
    group_ranks: Option<&'a RawValue>,
}

impl<'a> Arguments<'a> {
    pub(super) fn read(written: Option<&'a RawValue>) -> Self {
        written.and_then(|written| serde_json::from_str(written.get()).ok()).unwrap_or_default()
    }

    /// Returns the stream; `None` for what did not run on a device.
    pub(super) fn stream(&self) -> Option<i64> {
        let written = self.stream?.get();
        written.trim_matches('"').parse().ok().filter(|&stream| stream >= 0)
    }

    pub(super) fn correlation(&self) -> u64 {
        self.correlation.and_then(|written| whole(written.get())).unwrap_or(0)
    }

    /// Returns true if the event says which collective it is of.
    pub(super) fn is_of_collective(&self) -> bool {
        self.collective.is_some()
    }

    /// Returns the function that the job called.
    pub(super) fn function(&self) -> Option<Function> {
        torch::function(&text(self.collective?)?)
    }

    /// Returns what this rank passes to the collective, in bytes.
    pub(super) fn bytes(&self) -> Option<u64> {
        let elements = whole(self.elements?.get())?;
        elements.checked_mul(torch::element_bytes(&text(self.element_type?)?)?)
    }

    pub(super) fn group(&self) -> Option<Group> {
        let name = text(self.group_name?)?.into_owned();
        let ranks = self.group_ranks.and_then(text);
        let ranks: Option<Vec<u32>> = ranks.and_then(|ranks| serde_json::from_str(&ranks).ok());
        let size = self.group_size.and_then(|size| whole(size.get())).and_then(|size| size.try_into().ok());
        let size = size.or_else(|| ranks.as_ref().map(|ranks| ranks.len() as u32));
        Some(Group { name, ranks, size })
    }
}

fn text(written: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str(written.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Written<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_collective_says_what_it_carries() {
        let event = written(
            r#"{"ph": "X", "ts": 10.5, "dur": 2, "args": {"stream": 40, "correlation": 7,
            "Collective name": "_allgather_base", "In msg nelems": 100, "dtype": "BFloat16", "Group size": 2,
            "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": 3}}"#,
        );
        assert_eq!(event.times(), Some((10_500, 12_500)));
        let args = Arguments::read(event.args);
        assert_eq!((args.stream(), args.correlation()), (Some(40), 7));
        assert_eq!((args.function(), args.bytes()), (Some(Function::AllGather), Some(200)));
        let group = Group { name: "0".into(), ranks: Some(vec![0, 1]), size: Some(2) };
        assert_eq!(args.group(), Some(group));
    }

    #[test]
    fn what_is_cut_or_missing_is_unknown() {
        let event = written(
            r#"{"ts": 1, "args": {"stream": -1, "Process Group Name": "1", "Process Group Ranks": "[0, 8, ...", "Group size": 64, "dtype": "Odd", "In msg nelems": 3}}"#,
        );
        let args = Arguments::read(event.args);
        assert_eq!((args.stream(), args.bytes(), args.function()), (None, None, None));
        assert_eq!(args.group(), Some(Group { name: "1".into(), ranks: None, size: Some(64) }));
        assert_eq!(written(r#"{"ts": "soon"}"#).times(), None);
        assert_eq!(written(r#"{"ts": "12.5", "dur": "1"}"#).times(), Some((12_500, 13_500)));
    }
}
