"""``python -m vista`` is the command ``vista``."""

import sys

from vista.cli import main

if __name__ == "__main__":
    sys.exit(main())
