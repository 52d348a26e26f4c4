//! `paceline serve`, which serves until it is stopped.

use anyhow::bail;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::leftovers::{self, Known};
use super::{ServeArguments, print, runtime, start_logging};
use crate::serve::{Options, Presentation, Server, close_files_to_others, raise_file_limit};

pub(super) fn serve(arguments: ServeArguments, presentation: Presentation) -> anyhow::Result<()> {
    start_logging("warn,paceline=info");
    raise_file_limit();
    close_files_to_others();
    runtime::run(async {
        let (data, token) = (arguments.data.path(), arguments.token.read()?);
        let options = Options {
            listen: arguments.listen,
            data: data.clone(),
            token: token.clone(),
            host_names: arguments.host_names,
            auto_traces: arguments.auto_traces,
            presentation,
        };
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut starting = Box::pin(Server::start(options));
        let server = tokio::select! {
            started = &mut starting => started?,
            () = stopped(&mut interrupt, &mut terminate) => {
                // Runs are still being read. The directory stays locked until the process has ended.
                std::mem::forget(starting);
                return Ok(());
            }
        };
        print(&format!("Dashboard: {}\nData:      {}\n", server.address, data.display()))?;
        tokio::spawn(leftovers::send_aside(Known { address: server.address.clone(), token }));
        let failure = tokio::select! {
            () = stopped(&mut interrupt, &mut terminate) => None,
            failure = server.vitals.failed() => Some(failure),
        };
        server.stop().await;
        match failure {
            Some(failure) => bail!("the server stops because {failure}; acknowledged batches are on disk"),
            None => Ok(()),
        }
    })
}

/// Waits until the server is told to stop.
async fn stopped(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
