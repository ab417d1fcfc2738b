"""`python -m cutaway …` is the `cutaway` command; torchrun starts it this way, once for each GPU."""

from cutaway.cli import main

main()
