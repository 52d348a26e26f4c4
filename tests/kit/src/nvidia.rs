//! NVIDIA's own libraries from Debian and the Python package index, stored under `target/nvidia`. They give tests the
//! libraries of a GPU job on a machine without a GPU. Their licenses keep them out of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::fetch;

/// Serializes downloads. Tests of one program run concurrently and share what they download.
static FETCHING: Mutex<()> = Mutex::new(());

fn folder(name: &str) -> PathBuf {
    fetch::folder("nvidia").join(name)
}

/// Returns the folder with the driver's own `libcuda.so.1` and `libnvidia-ml.so.1`, which find no device without the
/// kernel module. Returns `None` and prints the reason on standard error if Debian cannot be reached.
///
/// # Errors
/// Returns an error if files cannot be written.
pub fn driver() -> anyhow::Result<Option<PathBuf>> {
    let _one_at_a_time = FETCHING.lock();
    let root = folder("driver");
    let there = fetch::once("NVIDIA's driver library", &root, "Debian non-free", || debian(&root))?;
    Ok(there.then(|| root.join("usr/lib/x86_64-linux-gnu/nvidia/current")))
}

/// Returns the unpacked wheel of `package` (for instance `nvidia-cuda-cupti-cu12`). Returns `None` and prints the
/// reason on standard error if the package index cannot be reached.
///
/// # Errors
/// Returns an error if files cannot be written.
pub fn wheel(package: &str, version: &str) -> anyhow::Result<Option<PathBuf>> {
    wheels(&format!("{package}-{version}"), package, version, &[&format!("{package}=={version}")])
}

/// Returns a toolkit that builds programs for CUDA 13.0, laid out like an installation by NVIDIA: `bin/nvcc`, `include`
/// and `lib64`, with the driver's library to link against. Returns `None` as [`driver`] and [`wheel`] do.
///
/// # Errors
/// Returns an error if files cannot be written.
pub fn toolkit() -> anyhow::Result<Option<PathBuf>> {
    let Some(driver) = driver()? else { return Ok(None) };
    let Some(root) = wheels("cuda-13.0", "CUDA's compiler and libraries", "13.0", &TOOLKIT)? else {
        return Ok(None);
    };
    let toolkit = root.join("nvidia/cu13");
    let libraries = toolkit.join("lib");
    let link = |from: &Path, to: &Path| match std::os::unix::fs::symlink(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    link(Path::new("lib"), &toolkit.join("lib64"))?;
    link(&driver.join("libcuda.so.1"), &libraries.join("libcuda.so"))?;
    for file in fs::read_dir(&libraries)?.flatten() {
        // For example, libcublas.so points to libcublas.so.13.
        let name = file.file_name().to_string_lossy().into_owned();
        if let Some((short, _)) = name.split_once(".so.") {
            link(Path::new(&name), &libraries.join(format!("{short}.so")))?;
        }
    }
    Ok(Some(toolkit))
}

/// The packages of CUDA 13.0. PyTorch 2.11 uses that version, and programs run with PyTorch's libraries.
const TOOLKIT: [&str; 8] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cublas==13.0.2.14",
    "nvidia-cuda-nvrtc==13.0.88",
    "nvidia-curand==10.4.0.35",
];

/// Unpacks these wheels together into the folder `name` and returns it.
fn wheels(name: &str, what: &str, version: &str, pinned: &[&str]) -> anyhow::Result<Option<PathBuf>> {
    let _one_at_a_time = FETCHING.lock();
    let root = folder(name);
    // On Debian, Python has pip in virtual environments only.
    let python = folder("python");
    let made = || fetch::succeed(Path::new("python3"), &["-m", "venv", &python.to_string_lossy()]);
    if !fetch::once("a Python environment", &python, "1", made)? {
        return Ok(None);
    }
    let there = fetch::once(what, &root, version, || {
        let folder = root.to_string_lossy();
        let install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps"];
        let bounds = ["--retries", "1", "--timeout", "20", "--target", &folder];
        fetch::succeed(&python.join("bin/pip"), &[&install[..], &bounds, pinned].concat())
    })?;
    Ok(there.then_some(root))
}

/// Downloads packages for the running Debian release. Separate package lists leave those of the machine alone.
fn debian(root: &Path) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    let release = fs::read_to_string("/etc/os-release").map_err(said)?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.filter(|_| release.contains("\nID=debian")).ok_or("this system is not Debian")?;
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let source = format!("deb [signed-by={keys}] http://deb.debian.org/debian {codename} non-free\n");
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(root.join(part)).map_err(said)?;
    }
    fs::write(root.join("sources.list"), source).map_err(said)?;
    let at = root.display();
    let apt = [
        "--chdir".into(),
        root.display().to_string(),
        "apt-get".into(),
        "-qq".into(),
        format!("-oDir::Etc::SourceList={at}/sources.list"),
        "-oDir::Etc::SourceParts=-".into(),
        format!("-oDir::State::Lists={at}/lists"),
        format!("-oDir::Cache={at}/cache"),
        "-oAcquire::Retries=1".into(),
        "-oAcquire::http::Timeout=20".into(),
    ];
    for words in [&["update"][..], &["download", "libcuda1", "libnvidia-ml1"]] {
        let words: Vec<&str> = apt.iter().map(String::as_str).chain(words.iter().copied()).collect();
        fetch::succeed(Path::new("env"), &words)?;
    }
    let files = fs::read_dir(root).map_err(said)?.flatten().map(|entry| entry.path());
    for package in files.filter(|path| path.extension().is_some_and(|extension| extension == "deb")) {
        fetch::succeed(Path::new("dpkg-deb"), &["-x", &package.to_string_lossy(), &root.to_string_lossy()])?;
    }
    Ok(())
}
