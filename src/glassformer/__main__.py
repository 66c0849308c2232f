"""`python -m glassformer` is the command line."""

from glassformer.cli import main

main()
