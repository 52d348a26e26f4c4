//! Names and lines for addresses of code in this process.

use std::collections::HashMap;

use wire::stacks::Frame;

use super::modules::Names;
use crate::profile::shortened;

/// The frames of addresses that were looked up.
pub(super) struct Symbols {
    modules: Names,
    known: HashMap<u64, Vec<Frame>>,
}

impl Symbols {
    pub(super) fn new(modules: Names) -> Self {
        Self { modules, known: HashMap::new() }
    }

    /// Returns the functions that an address is in, outermost first: more than one if some are inlined. Code without a symbol
    /// has the name of its module.
    pub(super) fn frames(&mut self, address: u64) -> Vec<Frame> {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let mut frames = Vec::new();
        backtrace::resolve(address as *mut _, |symbol| {
            if let Some(name) = symbol.name() {
                let file = symbol.filename().map(|file| file.to_string_lossy().into_owned());
                frames.push(Frame {
                    // Without the hash at the end.
                    function: shortened(&format!("{name:#}")),
                    file: shortened(&file.unwrap_or_default()),
                    line: symbol.lineno().unwrap_or(0),
                });
            }
        });
        if frames.is_empty() {
            let module = self.modules.module(address).unwrap_or("unknown code").trim_matches(['[', ']']);
            frames.push(Frame { function: format!("[{}]", shortened(module)), file: String::new(), line: 0 });
        }
        frames.reverse();
        self.known.insert(address, frames.clone());
        frames
    }
}
