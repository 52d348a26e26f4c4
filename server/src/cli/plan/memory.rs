//! Whether the model fits into the memory of a device, as text and in JSON.

use analysis::plan::estimate::Plan;
use analysis::plan::memory::{Kept, OnRank, Shape, Sharding};
use clap::Args;

use super::positive;

#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub(super) struct MemoryArguments {
    /// Memory of one device, in bytes
    #[arg(long, value_name = "BYTES", value_parser = positive)]
    pub(super) memory: Option<f64>,
    /// Layers of the transformer; with the four arguments below, its activations are counted
    #[arg(long, value_name = "L", requires_all = ["hidden", "heads", "sequence", "micro_batch"], value_parser = positive)]
    layers: Option<f64>,
    /// Width of the model
    #[arg(long, value_name = "H", requires = "layers", value_parser = positive)]
    hidden: Option<f64>,
    /// Attention heads
    #[arg(long, value_name = "A", requires = "layers", value_parser = positive)]
    heads: Option<f64>,
    /// Tokens of a sequence
    #[arg(long, value_name = "TOKENS", requires = "layers", value_parser = positive)]
    sequence: Option<f64>,
    /// Sequences of a micro-batch on one rank
    #[arg(long, value_name = "B", requires = "layers", value_parser = positive)]
    micro_batch: Option<f64>,
}

impl MemoryArguments {
    pub(super) fn shape(&self) -> Option<Shape> {
        Some(Shape {
            layers: self.layers?,
            hidden: self.hidden?,
            heads: self.heads?,
            sequence: self.sequence?,
            micro_batch: self.micro_batch?,
        })
    }
}

/// Returns the table of the memory of one device, if its size is given.
pub(super) fn table(plan: &Plan, worlds: &[u32]) -> String {
    let Some(memory) = plan.device_bytes else { return String::new() };
    let kept: &[Kept] = if plan.shape.is_some() { &Kept::ALL } else { &[] };
    let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
    let fits =
        |bytes: f64| format!("{} {}", gigabytes(bytes), if bytes <= memory { "fits" } else { "too large" });
    let mut out = format!("\nMemory of one device, of {}:\n", gigabytes(memory));
    out += &format!("{:>8}  {:<14}{:>22}", "ranks", "states", "alone");
    kept.iter().for_each(|kept| out += &format!("{:>26}", format!("+ {}", kept.name())));
    out.push('\n');
    for &ranks in worlds {
        let model = plan.model_on(ranks);
        for sharding in Sharding::ALL {
            out += &format!("{ranks:>8}  {:<14}{:>22}", sharding.name(), fits(model.bytes(sharding, None)));
            kept.iter().for_each(|&kept| out += &format!("{:>26}", fits(model.bytes(sharding, Some(kept)))));
            out.push('\n');
        }
    }
    out += "\nStates: 16 bytes per parameter, as of Adam in mixed precision (Rajbhandari et al., 2020).\n";
    if !kept.is_empty() {
        out += "Activations: of a transformer in 16 bits (Korthikanti et al., 2022).\n";
    }
    out + "Buffers of communication and fragments are not counted.\n"
}

/// Returns the bytes of the states on one rank, and with each kind of activations if the shape of the model is given.
pub(super) fn json(model: &OnRank) -> serde_json::Value {
    let states = |sharding: Sharding| {
        let kept = Kept::ALL.iter().filter(|_| model.shape.is_some());
        let kept_states = kept.map(
            |&kept| serde_json::json!({ "kept": kept.name(), "bytes": model.bytes(sharding, Some(kept)) }),
        );
        serde_json::json!({
            "states": sharding.name(), "bytes": model.bytes(sharding, None), "with_activations": kept_states.collect::<Vec<_>>(),
        })
    };
    Sharding::ALL.map(states).into()
}
