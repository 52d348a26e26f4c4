"""Calls a function after the import of a module."""

import sys

from paceline._errors import guarded, harmless


class Imported:
    """Finds a module like the other finders do, and calls a function with it after its import."""

    def __init__(self, watched):
        self.watched = watched
        # If it fails, the other finders find the module.
        self.find_spec = harmless(self.find)

    def find(self, name, path=None, target=None):
        if name not in self.watched:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        execute = getattr(getattr(spec, "loader", None), "exec_module", None)
        if execute is not None:

            def execute_and_tell(module):
                execute(module)
                # Some loaders load many modules.
                then = self.watched.pop(module.__name__, None)
                if then is not None:
                    guarded(then, module)

            guarded(setattr, spec.loader, "exec_module", execute_and_tell)
        return spec


def after_import(watched):
    """Calls each function of `watched` with the module of that name: now, if it is imported, or else after its import."""
    for name in [name for name in watched if name in sys.modules]:
        guarded(watched.pop(name), sys.modules[name])
    if watched:
        sys.meta_path.insert(0, Imported(watched))
