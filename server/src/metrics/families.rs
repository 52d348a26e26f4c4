//! The registry, and the names of the registered families.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntGauge, Registry, TextEncoder};

/// The registered families.
#[derive(Default)]
pub(super) struct Families {
    registry: Registry,
    pub(super) names: Vec<String>,
}

impl Families {
    /// Registers a family. All names are constants, so a duplicate is a mistake in a table, and every test would panic.
    pub(super) fn add<C: Collector + Clone + 'static>(&mut self, family: C) -> C {
        self.names.extend(family.desc().iter().map(|description| description.fq_name.clone()));
        self.registry.register(Box::new(family.clone())).expect("each name is registered once");
        family
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help).expect("the name is valid"))
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help).expect("the name is valid"))
    }

    /// Returns all families in Prometheus text format.
    pub(super) fn encode(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// Returns the bounds of 19 histogram buckets: three per decade, over six decades above `shortest`, in seconds.
pub(super) fn duration_buckets(shortest: f64) -> Vec<f64> {
    (0..19).map(|i| shortest * 10_f64.powf(f64::from(i) / 3.0)).collect()
}
