//! Tests of activity records of several CUDA releases. A C program fills them with NVIDIA's headers of that release,
//! and our code reads them.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use gpu::cupti::records::{ActivityOrigin, Record, Times};
use testkit::headers::{self, HOST_DEFINES, Headers};
use testkit::{fetch, nvidia};

/// The packages and versions of CUPTI and of CUDA's headers.
const RELEASES: [[&str; 4]; 4] = [
    ["nvidia-cuda-cupti-cu12", "12.1.105", "nvidia-cuda-runtime-cu12", "12.1.105"],
    ["nvidia-cuda-cupti-cu12", "12.8.90", "nvidia-cuda-runtime-cu12", "12.8.90"],
    ["nvidia-cuda-cupti", "13.0.85", "nvidia-cuda-runtime", "13.0.96"],
    ["nvidia-cuda-cupti", "13.4.92", "nvidia-cuda-runtime", "13.4.92"],
];

#[test]
fn records_of_all_releases_are_read_by_their_common_prefix() -> anyhow::Result<()> {
    for [cupti, version, runtime, runtime_version] in RELEASES {
        let (Some(cupti), Some(runtime)) =
            (nvidia::wheel(cupti, version)?, nvidia::wheel(runtime, runtime_version)?)
        else {
            return Ok(());
        };
        let headers =
            [headers::folder_of(&cupti, "cupti_activity.h")?, headers::folder_of(&runtime, "cuda.h")?];
        let records = filled(&headers).with_context(|| format!("CUPTI {version}"))?;
        assert_eq!(records, expected(), "CUPTI {version}");
    }
    Ok(())
}

#[test]
fn all_releases_have_the_assumed_numbers() -> anyhow::Result<()> {
    for [cupti, version, runtime, runtime_version] in RELEASES {
        let (Some(cupti), Some(runtime)) =
            (nvidia::wheel(cupti, version)?, nvidia::wheel(runtime, runtime_version)?)
        else {
            return Ok(());
        };
        let headers_of = |include| -> anyhow::Result<Headers<'_>> {
            let folders = vec![
                headers::folder_of(&cupti, "cupti_activity.h")?,
                headers::folder_of(&runtime, "cuda.h")?,
            ];
            Ok(Headers { include, folders, besides: &[HOST_DEFINES] })
        };
        headers_of(&["cupti_result.h", "cupti_activity.h"])?
            .hold(&format!("CUPTI {version}"), &gpu::cupti::assumptions())?;
        headers_of(&["cuda.h"])?.hold(
            &format!("CUDA {runtime_version}"),
            &[gpu::driver::assumptions(), gpu::meter::assumptions()].concat(),
        )?;
    }
    Ok(())
}

/// Returns the values that the C program writes to the records.
fn expected() -> [Record; 6] {
    let times = Times { start: 0x0102_0304_0506_0708, end: 0x1112_1314_1516_1718 };
    let place = ActivityOrigin { device: 3, context: 4, stream: 5 };
    [
        Record::Kernel { times, place, correlation: 6, name: String::new(), graph_node: 7 },
        Record::Memcpy { times, place, correlation: 6, bytes: 1 << 33, direction: 8 },
        Record::Memset { times, place, correlation: 6, bytes: 1 << 33 },
        Record::ExternalCorrelation { kind: 5, id: 1 << 34, correlation: 6 },
        Record::Overhead { times },
        Record::Other { kind: 38 },
    ]
}

/// Compiles and runs a program that fills one record of each kind.
fn filled(folders: &[PathBuf]) -> anyhow::Result<Vec<Record>> {
    let text = std::fs::read_to_string(folders[0].join("cupti_activity.h"))?;
    let newest = |name: &str| newest(&text, name).with_context(|| format!("the header has no {name}"));
    let ran = ".start = 0x0102030405060708, .end = 0x1112131415161718, .deviceId = 3, .contextId = 4, .streamId = 5, \
               .correlationId = 6";
    let source = [
        "#include <stdint.h>\n#include <stdio.h>\n#include <cupti_activity.h>\n".into(),
        "#define PUT(...) do { __VA_ARGS__; uint64_t bytes = sizeof record; fwrite(&bytes, 8, 1, stdout); \
         fwrite(&record, bytes, 1, stdout); } while (0)\nint main(void) {\n"
            .into(),
        format!(
            "PUT({} record = {{.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, .graphNodeId = 7, {ran}}});\n",
            newest("CUpti_ActivityKernel")?
        ),
        format!(
            "PUT({} record = {{.kind = CUPTI_ACTIVITY_KIND_MEMCPY, .bytes = 1ull << 33, \
             .copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, {ran}}});\n",
            newest("CUpti_ActivityMemcpy")?
        ),
        format!(
            "PUT({} record = {{.kind = CUPTI_ACTIVITY_KIND_MEMSET, .bytes = 1ull << 33, {ran}}});\n",
            newest("CUpti_ActivityMemset")?
        ),
        format!(
            "PUT({} record = {{.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, .externalKind = \
             CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, .externalId = 1ull << 34, .correlationId = 6}});\n",
            newest("CUpti_ActivityExternalCorrelation")?
        ),
        format!(
            "PUT({} record = {{.kind = CUPTI_ACTIVITY_KIND_OVERHEAD, .start = 0x0102030405060708, .end = \
             0x1112131415161718}});\n",
            newest("CUpti_ActivityOverhead")?
        ),
        format!(
            "PUT({} record = {{.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION}});\nreturn 0;\n}}\n",
            newest("CUpti_ActivitySynchronization")?
        ),
    ]
    .concat();
    let folder = tempfile::tempdir()?;
    let (file, program) = (folder.path().join("fill.c"), folder.path().join("fill"));
    std::fs::write(&file, source)?;
    std::fs::create_dir(folder.path().join("crt"))?;
    std::fs::write(folder.path().join(HOST_DEFINES.0), HOST_DEFINES.1)?;
    headers::compile(&file, &program, folders.iter().map(PathBuf::as_path).chain([folder.path()]))?;
    read_all(&fetch::bounded("20", &program, &[])?.stdout)
}

/// Returns the newest version of a record type, for example `CUpti_ActivityKernel9` instead of `CUpti_ActivityKernel8`.
fn newest(header: &str, name: &str) -> Option<String> {
    let numbers = header.match_indices(name).filter_map(|(at, _)| {
        let rest = &header[at + name.len()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[digits..].starts_with(';').then(|| rest[..digits].parse().unwrap_or(0_u32))
    });
    let newest = numbers.max()?;
    Some(if newest == 0 { name.into() } else { format!("{name}{newest}") })
}

fn read_all(mut bytes: &[u8]) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<8>() {
        let length = u64::from_le_bytes(*length) as usize;
        ensure!(rest.len() >= length, "a record is incomplete");
        let (record, rest) = rest.split_at(length);
        records.push(read(record));
        bytes = rest;
    }
    Ok(records)
}

#[allow(unsafe_code, reason = "records are read through a pointer, as from CUPTI")]
fn read(record: &[u8]) -> Record {
    // SAFETY: the record is complete by the headers of its release, and its name is null.
    unsafe { Record::read(record.as_ptr()) }
}
