//! The runtime of servers and launchers.

use std::time::Duration;

/// The time that work on other threads gets when a server or a launcher has ended: an analysis, for instance.
const WORK_GRACE: Duration = Duration::from_secs(2);

/// Runs `work` to its end, and returns what it returns. What other threads have not done soon after ends with the process:
/// acknowledged batches are on disk by then.
///
/// # Errors
/// Returns the error of `work`, or one if there can be no runtime.
pub(super) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("paceline-server")
        .enable_all()
        .build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(WORK_GRACE);
    done
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_analysis_that_does_not_end_does_not_hold_the_process() {
        let began = Instant::now();
        let done = run(async {
            let (begins, begun) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                let _gone = begins.send(());
                std::thread::sleep(Duration::from_secs(60));
            });
            begun.await?;
            Ok(7)
        });
        assert_eq!(done.expect("the work ends"), 7);
        assert!(began.elapsed() < Duration::from_secs(30), "took {:?}", began.elapsed());
    }
}
