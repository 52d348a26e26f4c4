//! `paceline serve`, which serves until it is stopped.

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};

use super::leftovers::{self, Known};
use super::{ServeArguments, print, runtime, start_logging};
use crate::serve::{Options, Server, close_files_to_others, raise_file_limit};

pub(super) fn serve(arguments: ServeArguments) -> anyhow::Result<()> {
    start_logging("warn,paceline=info");
    raise_file_limit();
    close_files_to_others();
    runtime()?.block_on(async {
        let (data, token) = (arguments.data.path(), arguments.token.read()?);
        let options = Options {
            listen: arguments.listen,
            data: data.clone(),
            token: token.clone(),
            host_names: arguments.host_names,
            auto_traces: arguments.auto_traces,
        };
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let server = Server::start(options).await?;
        print(&format!("Dashboard: {}\nData:      {}\n", server.address, data.display()))?;
        tokio::spawn(leftovers::send_aside(Known { address: server.address.clone(), token }));
        let failure = tokio::select! {
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
            failure = server.vitals.failed() => Some(failure),
        };
        server.stop().await;
        match failure {
            Some(failure) => bail!("the server stops because {failure}; acknowledged batches are on disk"),
            None => Ok(()),
        }
    })
}
