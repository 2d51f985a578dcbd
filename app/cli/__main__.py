"""`python -m app.cli`: the command line, as the launcher starts it."""

import sys

from app.cli.parser import main

sys.exit(main())
