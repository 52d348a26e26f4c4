//! The native part of the Python package `paceline`: the agent's library, and the bodies of the hooks that PyTorch calls.
//!
//! A hook holds the interpreter's lock, so its cost is the job's cost. The bodies here read the arguments that PyTorch
//! passes, call the agent's library, and return. They run no Python code, so no signal handler of the job runs in them,
//! and they never raise: an error is reported once and switches the hook off.

use pyo3::pymodule;

mod agent;
mod clock;
mod collections;
mod hooks;
mod phases;
mod reductions;

/// The native part of the package.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::agent::Agent;
    #[pymodule_export]
    use crate::collections::Collections;
    #[pymodule_export]
    use crate::hooks::Hooks;
    #[pymodule_export]
    use crate::phases::{DevicePhase, Phase};
    #[pymodule_export]
    use crate::reductions::Reductions;
}
