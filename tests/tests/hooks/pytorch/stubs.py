"""Lets PyTorch's wheel from the package index run without CUDA. Usage: stubs.py SITE_PACKAGES

The wheel is linked with CUDA's libraries, which take 3 GB and which no test uses. For each missing library, this script
builds a stub with the required symbols and their versions. Each function returns 100, which is cudaErrorNoDevice, so
PyTorch finds no device and computes on the host. Functions that describe an error return a text.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

CUDA = re.compile(r"(__)?(cuda|cu[A-Z]|cu(blas|fft|rand|sparse|solver|dnn|pti|File)|nccl|nv(rtc|shmem|tx|ml|Jit))")
SYSTEM = re.compile(r"(lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s|z|quadmath)\.so|ld-linux)")


def output(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def symbols(library, which):
    for line in output("nm", "--dynamic", "--portability", which, library).splitlines():
        name, _, version = line.split()[0].partition("@")
        yield name, version.lstrip("@") or None


def versions(library):
    """Yields each version of a symbol with the library that must define it."""
    file = None
    for line in output("readelf", "--version-info", "--wide", library).splitlines():
        if found := re.search(r"File: (\S+)\s+Cnt", line):
            file = found[1]
        elif (found := re.search(r"Name: (\S+)\s+Flags", line)) and file:
            yield found[1], file


def main(folder):
    libraries = [path for path in folder.iterdir() if ".so" in path.name]
    defined, wanted, version_of, needed = set(), set(), {}, set()
    for library in libraries:
        defined.update(name for name, _ in symbols(library, "--defined-only"))
        wanted.update(symbols(library, "--undefined-only"))
        version_of.update(versions(library))
        needed.update(re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "--dynamic", library)))
    here = {library.name for library in libraries}
    stubs = {name: defaultdict(list) for name in needed if name not in here and not SYSTEM.match(name)}
    anywhere = next(name for name in stubs if name.startswith("libcudart"))
    for name, version in wanted:
        file = version_of.get(version) if version else anywhere if CUDA.match(name) else None
        if name not in defined and file in stubs:
            stubs[file][version].append(name)
    for name, by_version in stubs.items():
        make(folder / name, by_version)
    print(len(stubs), "libraries")


def result(name):
    # `cuGetErrorString` returns its text through a pointer.
    describes = name.endswith(("String", "ErrorName")) and name != "cuGetErrorString"
    return '(long)"no CUDA"' if describes else "100"


def make(library, by_version):
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch) / "stub.c", Path(scratch) / "stub.map"
        names = [name for of in by_version.values() for name in of]
        # C++ symbols are not valid names in C.
        body = 'long stub%d(void) __asm__("%s"); long stub%d(void) { return %s; }\n'
        bodies = (body % (n, name, n, result(name)) for n, name in enumerate(names))
        source.write_text("int nothing_else;\n" + "".join(bodies))
        entry = "%s { global: %s; };\n"
        tagged = [entry % (version, "; ".join(of)) for version, of in by_version.items() if version]
        script.write_text("".join(tagged))
        options = ["-Wl,--version-script=%s" % script] if tagged else []
        output("cc", "-shared", "-fPIC", "-w", "-Wl,-soname,%s" % library.name, *options, "-o", library, source)


main(Path(sys.argv[1]) / "torch" / "lib")
