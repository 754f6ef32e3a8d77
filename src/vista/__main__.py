"""``python -m vista`` is ``vista``."""

import sys

from vista.cli import main

if __name__ == "__main__":
    sys.exit(main())
