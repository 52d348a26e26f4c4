//! Keys, as WebDriver types them.

pub const CONTROL_K: &str = "\u{e009}k\u{e000}";
pub const DOWN: &str = "\u{e015}";
pub const ENTER: &str = "\u{e007}";
pub const ESCAPE: &str = "\u{e00c}";
pub const LEFT: &str = "\u{e012}";
pub const RIGHT: &str = "\u{e014}";
pub const TAB: &str = "\u{e004}";
