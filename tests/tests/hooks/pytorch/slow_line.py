"""A process with a slow line that is observed as a rank, without PyTorch. Usage: slow_line.py SERVER"""

import sys
import threading  # noqa: F401: before Python 3.11, threads have names only if it is imported, as PyTorch does
import time

import paceline
from paceline._agent import agent


def slow():
    time.sleep(0.01)  # slow


def main():
    if not paceline.watch(server=sys.argv[1], run="slow-line", name="slow-line"):
        sys.exit("not observed")
    if agent().group(1, 1, 0) < 0:
        sys.exit("the group is not observed")
    print("observed", flush=True)
    while True:
        slow()


main()
