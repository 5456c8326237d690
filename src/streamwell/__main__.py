"""`python -m streamwell`."""

from streamwell.cli import main

main()
