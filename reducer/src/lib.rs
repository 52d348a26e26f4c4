//! A bucketed gradient all-reduce for data-parallel training that overlaps with the backward pass and records itself.
//!
//! A job passes its parameters to a [`Reducer`] once. In each step, the backward pass passes every gradient as it
//! becomes ready. When the last gradient of a bucket is ready, a communication thread reduces the bucket while the
//! backward pass continues. The end of the step returns the averages over all ranks.
//!
//! ```
//! use paceline_reducer::{Instruments, Options, Parameter, Reducer, Share, Step, StepContext, local};
//!
//! let mut world = local::world(1, std::time::Duration::from_secs(5));
//! let parameters = vec![Parameter::new("weight", [2, 2]), Parameter::new("bias", [2])];
//! let mut reducer =
//!     Reducer::new(parameters, Box::new(world.remove(0)), Options::default(), Instruments::none())?;
//! let [weight, bias] = [reducer.id("weight").unwrap(), reducer.id("bias").unwrap()];
//! reducer.begin_step(StepContext { step: Step(0), shadow: false }, Share::even(1))?;
//! reducer.mark_ready(bias, &[1.0, 2.0])?; // the backward pass visits parameters in reverse order
//! reducer.mark_ready(weight, &[0.0; 4])?;
//! assert_eq!(reducer.finish_step()?.gradient(bias), Some(&[1.0, 2.0][..]));
//! # Ok::<(), paceline_reducer::ReduceError>(())
//! ```
//!
//! Guarantees:
//!
//! - All ranks reduce buckets in the same order, in whatever order gradients become ready.
//! - The result has the same bits on all ranks.
//! - Every failure becomes an error on every rank, within the communicator's timeout. The error names the parameter or
//!   the rank.
//! - After an error the reducer stays failed.
//!
//! The crate does not depend on autograd, on optimizers or on how ranks are started.
#![warn(missing_docs)]

pub mod bucketing;
mod communicator;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
mod host;
pub mod local;
mod memory;
mod model;
mod reducer;
pub mod ring;
mod share;
mod slots;
mod worker;

pub use communicator::{AbortHandle, Communicator, Control, Operation};
pub use error::{Absent, CommError, ReduceError};
pub use host::Host;
pub use memory::Memory;
pub use model::{ParamId, Parameter};
pub use reducer::{Instruments, Options, Reduced, Reducer, UnusedParameters};
pub use share::Share;
// The types of `Reducer`'s methods, so that a job needs no other crate.
pub use agent::StepContext;
pub use wire::ids::{Bucket, Rank, Step};
