//! The program and the libraries of this process, with the tables by which their stacks are unwound.

use std::fs::{self, File};
use std::path::Path;

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use object::read::ReadCache;
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use wire::stacks::MAX_DEPTH;

use super::snapshot::{Registers, Snapshot};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as UnwindRegisters, UnwinderAarch64 as Unwinder,
};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as UnwindRegisters, UnwinderX86_64 as Unwinder,
};

/// The largest number of frames of a stack that is unwound. Of a deeper one, the outermost frames stay unknown.
const MAX_UNWOUND: usize = 4 * MAX_DEPTH;

/// Unwinds stacks of this process.
pub(super) struct Unwinding {
    unwinder: Unwinder<Vec<u8>>,
    cache: Cache,
    names: Names,
}

/// The ranges of addresses of the modules, with their names.
pub(super) struct Names(Vec<(u64, u64, String)>);

impl Names {
    /// Returns the name of the module that contains an address.
    pub(super) fn module(&self, address: u64) -> Option<&str> {
        let (_, _, name) = self.0.iter().find(|(begin, end, _)| (*begin..*end).contains(&address))?;
        Some(name)
    }
}

impl Unwinding {
    /// Reads the tables of all modules that are loaded now. Code of a module without tables, or of one that is loaded later,
    /// is unwound by frame pointers.
    pub(super) fn read() -> Self {
        let mut unwinding = Self { unwinder: Unwinder::new(), cache: Cache::new(), names: Names(Vec::new()) };
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for mapping in maps.lines().filter_map(Mapping::parse) {
            if mapping.path.starts_with('/')
                && let Some(module) = module(&mapping)
            {
                unwinding.unwinder.add_module(module);
            }
            let name = Path::new(mapping.path).file_name().unwrap_or_default().to_string_lossy();
            unwinding.names.0.push((mapping.begin, mapping.end, name.into_owned()));
        }
        unwinding
    }

    /// Returns the addresses of a stack's instructions, innermost first. For a caller it is one within its call.
    pub(super) fn addresses(&mut self, snapshot: &Snapshot) -> Vec<u64> {
        let registers = snapshot.registers;
        let mut read = |address: u64| snapshot.read(address).ok_or(());
        let unwinder_registers = unwind_registers(&registers);
        let mut frames =
            self.unwinder.iter_frames(registers.instruction, unwinder_registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        // Where unwinding fails, the frames so far count.
        while let (true, Ok(Some(frame))) = (addresses.len() < MAX_UNWOUND, frames.next()) {
            addresses.push(frame.address_for_lookup());
        }
        addresses
    }

    pub(super) fn into_names(self) -> Names {
        self.names
    }
}

#[cfg(target_arch = "x86_64")]
fn unwind_registers(registers: &Registers) -> UnwindRegisters {
    UnwindRegisters::new(registers.instruction, registers.stack, registers.frame)
}

#[cfg(target_arch = "aarch64")]
fn unwind_registers(registers: &Registers) -> UnwindRegisters {
    UnwindRegisters::new(registers.link, registers.stack, registers.frame)
}

/// A range of addresses with code, from a file or from the kernel.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    begin: u64,
    end: u64,
    /// The position in the file.
    offset: u64,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    /// Parses a line of `/proc/self/maps`. Returns `None` if it has no code, or neither a file nor a name.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (begin, end) = fields.next()?.split_once('-')?;
        let is_code = fields.next()?.contains('x');
        let offset = fields.next()?;
        let path = fields.nth(2)?.trim_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        let mapping = Self { begin: number(begin)?, end: number(end)?, offset: number(offset)?, path };
        (is_code && !path.is_empty()).then_some(mapping)
    }
}

/// Reads the tables of the file that a mapping belongs to.
fn module(mapping: &Mapping<'_>) -> Option<Module<Vec<u8>>> {
    let file = ReadCache::new(File::open(mapping.path).ok()?);
    let object = object::File::parse(&file).ok()?;
    let bias = object.segments().find_map(|segment| {
        let is_code = segment.permissions().executable();
        let (offset, bytes) = segment.file_range();
        // A mapping begins at the page in which its segment begins.
        let end = mapping.offset + (mapping.end - mapping.begin);
        let is_of_it = is_code && offset < end && mapping.offset < offset + bytes;
        let at = mapping.begin.wrapping_add(offset).wrapping_sub(mapping.offset);
        is_of_it.then(|| at.wrapping_sub(segment.address()))
    })?;
    let section = |name: &str| {
        let section = object.section_by_name(name)?;
        let range = section.address()..section.address() + section.size();
        Some((range, section.data().ok()?.to_vec()))
    };
    let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
    let range_of = |name: &str| {
        let section = object.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range_of(".text"),
        got_svma: range_of(".got"),
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        ..Default::default()
    };
    Some(Module::new(mapping.path.to_owned(), mapping.begin..mapping.end, bias, sections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found_in_the_list_of_mappings() {
        let code = "7f00-7f90 r-xp 00001000 08:01 77                         /usr/lib/with space.so";
        let expected = Mapping { begin: 0x7f00, end: 0x7f90, offset: 0x1000, path: "/usr/lib/with space.so" };
        assert_eq!(Mapping::parse(code), Some(expected));
        let kernel = Mapping::parse("7ffc-7ffd r-xp 00000000 00:00 0                          [vdso]");
        assert_eq!(kernel.map(|kernel| kernel.path), Some("[vdso]"));
        for other in [
            "7f00-7f90 r--p 00000000 08:01 77                         /usr/lib/libc.so.6",
            "7f00-7f90 rwxp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(Mapping::parse(other), None, "{other}");
        }
    }
}
