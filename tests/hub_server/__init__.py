"""A Hub on loopback: the Hub's HTTP protocol for the unmodified `huggingface_hub` and `datasets` clients, in memory.

A client finds it by `HF_ENDPOINT`; nothing is patched. A passing test shows that our requests follow the protocol, but not which
cards, sizes or rates the real Hub accepts. The fixture `loopback` (see `lanes.py`) is an empty Hub; its users run functions
in a process that uses it. `python -m tests.hub_server` starts a Hub by hand.
"""
