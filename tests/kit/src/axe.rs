//! axe-core, a checker of accessibility rules. The package is downloaded once from the npm registry, verified against a
//! pinned hash, and stored under `target/`, because its license keeps it out of this repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

const VERSION: &str = "4.14.1";
/// The SHA-512 of the package in hex, from `dist.integrity` of that version.
const SHA512: &str = "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b73\
                      4f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5";

/// Returns the source of axe-core, or the reason why it cannot be downloaded.
///
/// # Errors
/// Returns an error if the package does not match the pinned hash.
pub fn source() -> anyhow::Result<Result<String, String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/axe-core");
    std::fs::create_dir_all(&folder)?;
    let package = folder.join(format!("axe-core-{VERSION}.tgz"));
    if !package.is_file()
        && let Err(why) = fetch(&folder)
    {
        return Ok(Err(why));
    }
    ensure!(
        sha512(&package)? == SHA512,
        "{} does not match the pinned hash; remove the file",
        package.display()
    );
    let unpacked = Command::new("tar")
        .args(["-xzOf", &package.to_string_lossy(), "package/axe.min.js"])
        .output()
        .context("cannot run tar")?;
    ensure!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    Ok(Ok(String::from_utf8(unpacked.stdout)?))
}

/// Downloads the package with npm, which knows the registry that this machine uses.
fn fetch(folder: &Path) -> Result<(), String> {
    let packed = Command::new("npm")
        .args(["pack", &format!("axe-core@{VERSION}"), "--silent", "--pack-destination"])
        .arg(folder)
        .output()
        .map_err(|error| format!("cannot run npm ({error})"))?;
    if packed.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&packed.stderr);
    Err(format!("npm pack axe-core@{VERSION}: {}", said.lines().next().unwrap_or("failed")))
}

fn sha512(path: &PathBuf) -> anyhow::Result<String> {
    let sum = Command::new("sha512sum").arg(path).output().context("cannot run sha512sum")?;
    let text = String::from_utf8(sum.stdout)?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}
