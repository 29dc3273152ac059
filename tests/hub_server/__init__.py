"""A Hub on loopback: the Hub's HTTP protocol for the unmodified `huggingface_hub` and `datasets` clients, in memory.

A client finds it by `HF_ENDPOINT`; nothing is patched. A passing test shows that our requests follow the protocol, but not which
cards, sizes or rates the real Hub accepts: the rules here follow the client's source and the Hub's documentation.

The fixture `loopback` (see `lanes.py`) is an empty Hub. Functions run in a process that uses it:

    def upload(repo: str) -> str:
        return HfApi().upload_file(path_or_fileobj=b"1", path_in_repo="a.txt", repo_id=repo).oid

    def test_an_upload_is_one_commit(loopback):
        repo = loopback.repository()
        loopback.owner.call(upload, repo)
        assert loopback.files(repo)["a.txt"] == b"1"

`loopback.owner.attempt(main, ["push", ...])` returns exit code and output. Other users are `reader`, `stranger` and `nobody`;
`client(HF_HUB_OFFLINE="1")` has other settings. `python -m tests.hub_server` starts a Hub by hand.
"""
