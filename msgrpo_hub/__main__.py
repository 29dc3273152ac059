"""`python -m msgrpo_hub` is the `msgrpo` command."""

from msgrpo_hub.cli import main

main()
