"""Starts the observation in every Python process of a job, and then runs the job's own `sitecustomize`.

`paceline attach` puts the folder of this module first on the search path, so Python runs it at startup.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# The folder that has the package.
PACKAGES = os.path.dirname(os.path.dirname(HERE))


def start():
    """Observes the process with the package that `paceline attach` brought, whether or not one is installed."""
    sys.path.insert(0, PACKAGES)
    try:
        import paceline

        paceline.watch()
    except Exception as error:  # an observer never fails its host
        sys.stderr.write("paceline: not observing this process: %s: %s\n" % (type(error).__name__, error))
    finally:
        sys.path.remove(PACKAGES)


def run_the_jobs_own():
    """Runs the `sitecustomize` that this module hides, if there is one."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


start()
run_the_jobs_own()
