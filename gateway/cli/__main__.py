"""`python -m gateway.cli` is `ethos`."""

from gateway.cli import main

main()
