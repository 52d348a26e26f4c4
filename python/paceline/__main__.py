"""Runs the ``paceline`` program of this package."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "paceline")
    try:
        os.execv(program, [program] + sys.argv[1:])
    except OSError as error:
        sys.exit("paceline: cannot run %s: %s" % (program, error))


if __name__ == "__main__":
    main()
