//! Where the runs of a case leave their records.

use std::path::{Path, PathBuf};

/// One folder for each run: temporary, or kept, so that a changed analysis can be judged by the same runs.
pub struct Records(Option<PathBuf>);

impl Records {
    /// Of one case; kept in its folder below `keep`.
    pub fn of_case(keep: Option<&Path>, case: &str) -> Self {
        Self(keep.map(|folder| folder.join(case)))
    }

    /// Lets `train` leave its records in a folder, unless a kept run has, and reads them there.
    pub fn with<T>(
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
            // A run that was stopped is no run: it gets its name when it is done.
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
