//! The addresses of the views.

/// A view of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// The verdict, the figures and the ledger.
    Overview,
    /// The rank x step heatmap.
    Ranks,
    /// The waterfall of one step.
    Buckets,
    /// Efficiency against world size.
    Scaling,
    /// How the ranks' devices and hosts are used.
    Utilization,
    /// The lines of code in which ranks spend their time.
    Code,
    /// The trustworthiness of the figures.
    Health,
}

impl Tab {
    /// All tabs, left to right.
    pub const ALL: [Self; 7] = [
        Self::Overview,
        Self::Ranks,
        Self::Buckets,
        Self::Scaling,
        Self::Utilization,
        Self::Code,
        Self::Health,
    ];

    /// Returns the label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Ranks => "Ranks",
            Self::Buckets => "Buckets",
            Self::Scaling => "Scaling",
            Self::Utilization => "Utilization",
            Self::Code => "Code",
            Self::Health => "Health",
        }
    }

    /// Returns the last part of the path; empty for the first tab.
    fn key(self) -> String {
        if self == Self::Overview { String::new() } else { self.name().to_ascii_lowercase() }
    }

    /// Returns the path of the view of `run`.
    pub fn path(self, run: &str) -> String {
        let key = self.key();
        if key.is_empty() { format!("/runs/{run}") } else { format!("/runs/{run}/{key}") }
    }
}

/// Returns the run that a path names, if it is the path of a view of a run.
pub fn run_in(path: &str) -> Option<&str> {
    path.strip_prefix("/runs/")?.split('/').next().filter(|run| !run.is_empty())
}

/// Returns the view of a run that a path names.
pub fn tab_in(path: &str) -> Option<Tab> {
    let key = path.strip_prefix("/runs/")?.split('/').nth(1).unwrap_or_default();
    Tab::ALL.into_iter().find(|tab| tab.key() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_run_and_its_view() {
        for tab in Tab::ALL {
            let path = tab.path("r-1");
            assert_eq!((run_in(&path), tab_in(&path)), (Some("r-1"), Some(tab)), "{path}");
        }
        assert_eq!(["/", "/runs", "/runs/", "/compare"].map(run_in), [None; 4]);
        assert_eq!(tab_in("/runs/r-1/nothing"), None);
    }
}
