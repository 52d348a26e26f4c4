//! What our code takes for granted of other people's C headers, held against the headers themselves.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::fetch;

/// Headers, and what they need that is not in their package.
pub struct Headers<'a> {
    /// What is included, in order.
    pub include: &'a [&'a str],
    /// Folders that have them.
    pub folders: Vec<PathBuf>,
    /// Files that stand in for those of much larger packages: name and text.
    pub besides: &'a [(&'a str, &'a str)],
}

impl Headers<'_> {
    /// What expressions are by these headers, as unsigned integers.
    ///
    /// # Errors
    /// When a C compiler finds no meaning in one of them; the error is the compiler's.
    pub fn values(&self, expressions: &[&str]) -> anyhow::Result<Vec<u64>> {
        let folder = tempfile::tempdir()?;
        for (name, text) in self.besides {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().context("a file has a folder")?)?;
            std::fs::write(file, text)?;
        }
        let includes = self.include.iter().map(|header| format!("#include <{header}>\n")).collect::<String>();
        let print = |expression: &&str| format!("printf(\"%llu\\n\", (unsigned long long)({expression}));\n");
        let body = expressions.iter().map(print).collect::<String>();
        let source = format!(
            "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n{includes}int main(void) {{\n{body}return 0;\n}}\n"
        );
        let (file, program) = (folder.path().join("print.c"), folder.path().join("print"));
        std::fs::write(&file, source)?;
        compile(&file, &program, self.folders.iter().map(PathBuf::as_path).chain([folder.path()]))?;
        let printed = String::from_utf8(fetch::bounded("20", &program, &[])?.stdout)?;
        Ok(printed.lines().map(str::parse).collect::<Result<_, _>>()?)
    }

    /// Fails unless everything that is assumed is so; `release` says whose headers these are.
    ///
    /// # Panics
    /// When something is not, with all of both.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn hold(&self, release: &str, assumed: &[(&str, u64)]) -> anyhow::Result<()> {
        let expressions: Vec<&str> = assumed.iter().map(|(expression, _)| *expression).collect();
        let values = self.values(&expressions).with_context(|| release.to_owned())?;
        let found: Vec<(&str, u64)> = expressions.into_iter().zip(values).collect();
        assert_eq!(found, assumed, "{release}");
        Ok(())
    }
}

/// Compiles a C program.
///
/// # Errors
/// When the compiler does not; the error is the compiler's.
pub fn compile<'a>(
    source: &Path,
    program: &Path,
    folders: impl Iterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    let includes: Vec<String> = folders.map(|folder| format!("-I{}", folder.display())).collect();
    let (source, program) = (source.to_string_lossy(), program.to_string_lossy());
    let arguments = [["-w", "-o"].as_slice(), &[&*program, &*source]].concat();
    let arguments: Vec<&str> =
        arguments.into_iter().chain(includes.iter().map(String::as_str)).chain(["-ldl"]).collect();
    fetch::succeed(Path::new("cc"), &arguments).map_err(anyhow::Error::msg)
}

/// The folder below `root` that has a header.
///
/// # Errors
/// When none has.
pub fn folder_of(root: &Path, header: &str) -> anyhow::Result<PathBuf> {
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if folder.join(header).is_file() {
            return Ok(folder);
        }
        let entries = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    anyhow::bail!("{} has no {header}", root.display())
}

/// What `crt/host_defines.h` says to other compilers than NVIDIA's, which come in a much larger package.
pub const HOST_DEFINES: (&str, &str) = (
    "crt/host_defines.h",
    "
#define __host__
#define __device__
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDA_CB
",
);
