//! The versions of the software under a process, as far as any process can read them.

use std::collections::BTreeMap;

use procfs::{CpuInfo, Current as _};
use wire::attributes::{HYPERVISOR, NO_HYPERVISOR};

/// Returns the versions of the agent, the kernel and the operating system, and whether there is a hypervisor.
pub(crate) fn host_software() -> BTreeMap<String, String> {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let system = std::fs::read_to_string("/etc/os-release").ok().and_then(|text| pretty_name(&text));
    let known = [
        ("paceline", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("kernel", Some(kernel)),
        ("system", system),
        (HYPERVISOR, hypervisor().map(str::to_owned)),
    ];
    known.into_iter().filter_map(|(name, version)| Some((name.to_owned(), version?))).collect()
}

/// Returns whether a hypervisor runs this host; `None` if its processors do not say. Those with x86 instructions have a flag for it,
/// which hypervisors set.
fn hypervisor() -> Option<&'static str> {
    let processors = CpuInfo::current().ok()?;
    said_by(&processors.flags(0)?)
}

/// Returns what the flags of an x86 processor say; `None` for those of another one.
fn said_by(flags: &[&str]) -> Option<&'static str> {
    let is_x86 = flags.contains(&"fpu") && flags.contains(&"tsc");
    is_x86.then(|| if flags.contains(&"hypervisor") { "present" } else { NO_HYPERVISOR })
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
    fn a_processor_says_whether_there_is_a_hypervisor_if_it_has_a_flag_for_it() {
        assert_eq!(said_by(&["fpu", "tsc", "hypervisor"]), Some("present"));
        assert_eq!(said_by(&["fpu", "tsc", "sse2"]), Some(NO_HYPERVISOR));
        assert_eq!(said_by(&["fp", "asimd"]), None, "processors of Arm have no such flag");
        let here = std::fs::read_to_string("/proc/cpuinfo").unwrap().contains(" hypervisor");
        assert_eq!(host_software().get(HYPERVISOR).is_some_and(|value| value == "present"), here);
    }

    #[test]
    fn a_host_has_a_kernel_and_perhaps_a_system_with_a_name() {
        assert!(host_software()["kernel"].starts_with(|c: char| c.is_ascii_digit()));
        let text = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(pretty_name(text).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(pretty_name("PRETTY_NAME=''\n"), None);
        assert_eq!(pretty_name("ID=alpine\n"), None);
    }
}
