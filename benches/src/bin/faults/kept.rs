//! The folders for the records of a case's runs.

use std::path::{Path, PathBuf};

/// The folders of one case, one per run. They are temporary or stored permanently; with stored records, a changed
/// analysis can be judged on the same runs.
pub struct Records(Option<PathBuf>);

impl Records {
    /// Creates the folders of one case. With `keep`, they are stored below it.
    pub fn new(keep: Option<&Path>, case: &str) -> Self {
        Self(keep.map(|folder| folder.join(case)))
    }

    /// Runs `train` with a folder for its records, unless stored records exist, and then `read` with the same folder.
    pub fn read_or_train<T>(
        &self,
        run: &str,
        train: impl FnOnce(&Path) -> anyhow::Result<()>,
        read: impl FnOnce(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Some(case) = &self.0 else {
            let data = tempfile::tempdir()?;
            train(data.path())?;
            return read(data.path());
        };
        let data = case.join(run);
        if !data.exists() {
            // An interrupted run does not count: the folder gets its final name when the run is complete.
            let unfinished = case.join(format!("{run}.unfinished"));
            if unfinished.exists() {
                std::fs::remove_dir_all(&unfinished)?;
            }
            train(&unfinished)?;
            std::fs::rename(&unfinished, &data)?;
        }
        read(&data)
    }
}
