//! A bucketed, overlapped gradient all-reduce for data-parallel training, instrumented from the inside.
//!
//! A job gives its parameters to a [`Reducer`] once. In each step the backward pass hands over every gradient
//! as it becomes ready; a bucket whose last gradient came is reduced on a communication thread while the
//! backward pass goes on; the end of the step hands back the average over all ranks.
//!
//! ```
//! use reducer::{Instruments, Options, Parameter, Reducer, Share, local};
//! use agent::StepContext;
//! use wire::ids::Step;
//!
//! let mut world = local::world(1, std::time::Duration::from_secs(5));
//! let parameters = vec![Parameter::new("weight", [2, 2]), Parameter::new("bias", [2])];
//! let mut reducer =
//!     Reducer::new(parameters, Box::new(world.remove(0)), Options::default(), Instruments::none())?;
//! let [weight, bias] = [reducer.id("weight").unwrap(), reducer.id("bias").unwrap()];
//! reducer.begin_step(StepContext { step: Step(0), shadow: false }, Share::even(1))?;
//! reducer.mark_ready(bias, &[1.0, 2.0])?; // the backward pass ends with what the forward pass began with
//! reducer.mark_ready(weight, &[0.0; 4])?;
//! assert_eq!(reducer.finish_step()?.gradient(bias), Some(&[1.0, 2.0][..]));
//! # Ok::<(), reducer::ReduceError>(())
//! ```
//!
//! What it promises: buckets are reduced in the same order on all ranks whatever order gradients come in; the
//! result has the same bits on all ranks; whatever goes wrong ends in an error that names the parameter or
//! the rank, on every rank, within the communicator's timeout; after an error the reducer stays failed.
//! What it does not know: autograd, optimizers, and how ranks are started.

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

pub use communicator::{AbortHandle, Collective, Communicator, Control};
pub use error::{Absent, CommError, ReduceError};
pub use host::Host;
pub use memory::Memory;
pub use model::{ParamId, Parameter};
pub use reducer::{Instruments, Options, Reduced, Reducer, UnusedParameters};
pub use share::Share;
