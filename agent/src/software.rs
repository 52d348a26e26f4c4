//! The versions of the software under a process, as far as any process can read them.

use std::collections::BTreeMap;

/// Returns the versions of the agent, the kernel and the operating system.
pub(crate) fn of_host() -> BTreeMap<String, String> {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let system = std::fs::read_to_string("/etc/os-release").ok().and_then(|text| pretty_name(&text));
    let known = [
        ("paceline", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("kernel", Some(kernel)),
        ("system", system),
    ];
    known.into_iter().filter_map(|(name, version)| Some((name.to_owned(), version?))).collect()
}

/// Returns the name and version of the system from the text of `/etc/os-release`, which os-release(5) describes.
fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    let value = value.trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_kernel_and_perhaps_a_system_with_a_name() {
        assert!(of_host()["kernel"].starts_with(|c: char| c.is_ascii_digit()));
        let text = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(pretty_name(text).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(pretty_name("PRETTY_NAME=''\n"), None);
        assert_eq!(pretty_name("ID=alpine\n"), None);
    }
}
