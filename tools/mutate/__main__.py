"""`python -m tools.mutate`."""

from tools.mutate import main

main()
