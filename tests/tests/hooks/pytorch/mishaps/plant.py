"""Plants the faults of a plan in this process."""

import builtins
import functools
import importlib
import inspect
import os
import subprocess
import sys

# `_errors` has the guard itself, and the native part is no Python.
EXCEPT = ("_errors", "_native", "_native.abi3", "_site")
# Takes the hooks back at the exit. Nothing can do that if it fails itself, and then PyTorch ends the process with a signal.
LAST = "take_hooks_back"


class PanicException(BaseException):
    """Stands for the exception of the native part's bindings if Rust code panics."""


def change_torch(change):
    """Takes an attribute away from PyTorch, as another release might."""
    if change is None:
        return
    module, path = change
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    try:
        delattr(owner, name)
    except (AttributeError, TypeError):  # this release does not have it, or has it in a parent class
        pass


def functions(module):
    """Yields each function of a module as (its owner, its name, the function)."""
    for name, value in sorted(vars(module).items()):
        own = getattr(value, "__module__", None) == module.__name__
        if own and inspect.isclass(value):
            members = sorted(vars(value).items())
            yield from ((value, name, member) for name, member in members if inspect.isfunction(member))
        elif own and callable(value) and name != LAST:
            yield module, name, value
        elif getattr(value, "__module__", None) == "paceline._native":
            yield module, name, value


def modules_of_the_package():
    names = sorted(os.path.splitext(file)[0] for file in os.listdir(os.path.join(os.environ["MISHAPS_PACKAGE"], "paceline")))
    return [name for name in names if name.startswith("_") and not name.startswith("__") and name not in EXCEPT]


def plant(raising, struck):
    """Makes one function of the package fail. The file `struck` tells that it did."""
    modules = [importlib.import_module("paceline." + name) for name in modules_of_the_package()]
    found = [one for module in modules for one in functions(module)]
    owner, name, function = found[int(raising["function"] * len(found))]
    error = PanicException if raising["error"] == "PanicException" else getattr(builtins, raising["error"])
    calls = 0

    @functools.wraps(function, updated=())
    def fails(*arguments, **named):
        nonlocal calls
        calls += 1
        if calls == raising["call"] or raising["always"] and calls > raising["call"]:
            open(struck, "w").close()
            raise error("planted in %s" % name)
        return function(*arguments, **named)

    setattr(owner, name, fails)
    for module in modules:
        for other, value in list(vars(module).items()):
            if value is function:
                setattr(module, other, fails)
    return "%s.%s" % (owner.__name__, name)


def library(kind, real, folder, at):
    """Returns the path of an agent library that cannot be used."""
    path = os.path.join(folder, "library-%s-%d.so" % (kind, os.getpid()))
    if kind == "no_library":
        with open(path, "w") as file:
            file.write("no library at all")
    elif kind == "folder":
        os.makedirs(path, exist_ok=True)
    elif kind != "missing":
        names = subprocess.run(["nm", "-D", "--defined-only", "-P", real], capture_output=True, text=True, check=True).stdout
        names = sorted(line.split()[0] for line in names.splitlines() if line.startswith("paceline_pytorch_"))
        absent = names[int(at * len(names))]
        body = "".join("long %s(void) { return -1; }\n" % name for name in names if kind == "lacks_a_symbol" and name != absent)
        command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-o", path, "-"]
        subprocess.run(command, input=body or "int nothing;", text=True, check=True)
    return path


def plant_all(plan, server, struck):
    """Plants everything that is in the arm with Paceline only."""
    real, folder = os.environ["MISHAPS_LIBRARY"], os.environ["MISHAPS_FOLDER"]
    sys.path.insert(0, os.environ["MISHAPS_PACKAGE"])
    os.environ["PACELINE_AGENT_LIBRARY"] = library(plan["library"], real, folder, plan["symbol"]) if plan["library"] else real
    os.environ["PACELINE_SERVER"] = server
    os.environ["PACELINE_RUN_ID"] = "mishap-%d" % plan["seed"]
    os.environ.update(plan["variables"])
    return [plant(raising, struck) for raising in plan["raising"]]
