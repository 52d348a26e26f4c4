//! Compares assumptions of this repository about C headers of other projects with the headers themselves.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::fetch;

/// C headers, and the files that they need from other packages.
pub struct Headers<'a> {
    /// The headers to include, in order.
    pub include: &'a [&'a str],
    /// The folders that contain the headers.
    pub folders: Vec<PathBuf>,
    /// Replacements for files of much larger packages: name and text.
    pub besides: &'a [(&'a str, &'a str)],
}

impl Headers<'_> {
    /// Evaluates C expressions with these headers, as unsigned integers.
    ///
    /// # Errors
    /// Returns the compiler's error if an expression does not compile.
    pub fn values(&self, expressions: &[&str]) -> anyhow::Result<Vec<u64>> {
        let folder = tempfile::tempdir()?;
        for (name, text) in self.besides {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().context("the file has no folder")?)?;
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

    /// Asserts that the headers give every expression its assumed value. `release` names the headers in messages.
    ///
    /// # Panics
    /// Panics if a value differs; the message lists all found and all assumed values.
    ///
    /// # Errors
    /// Returns the errors of [`Self::values`].
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
/// Returns the compiler's error if compilation fails.
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

/// Returns the folder below `root` that contains a header.
///
/// # Errors
/// Returns an error if no folder contains it.
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

/// The definitions of `crt/host_defines.h` for compilers other than NVIDIA's. The original is part of a much larger
/// package.
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
