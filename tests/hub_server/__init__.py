"""A Hub on loopback: the Hub's HTTP protocol for the unmodified `huggingface_hub` and `datasets` clients.

A small web server (Starlette on uvicorn, everything in memory) with repositories, commits, Git LFS, trees, refs, pull requests,
card validation, Spaces and jobs. A client finds it by `HF_ENDPOINT`; nothing is patched. A passing test shows that we speak the
client's protocol. It does not show which cards, sizes, rates or names the real Hub accepts: the rules here come from the
client's source and the Hub's documentation.

The fixture `loopback` (see `fixture.py`) is an empty Hub. Functions run in a process in which the Hub is this one:

    def upload(repo: str) -> str:
        return HfApi().upload_file(path_or_fileobj=b"1", path_in_repo="a.txt", repo_id=repo).oid

    def test_a_file_goes_up_as_one_commit(loopback):
        repo = loopback.repository()
        loopback.owner.call(upload, repo)
        assert loopback.files(repo)["a.txt"] == b"1"

`loopback.owner.attempt(main, ["push", ...])` returns exit code and output. A test can look into the Hub (`stored`, `requests`),
make it fail (`fail`), and use other people (`reader`, `stranger`, `nobody`) or settings (`client(HF_HUB_OFFLINE="1")`).
By hand, `python -m tests.hub_server` starts a Hub and prints the variables to set.

Files: `store` the data; `access` permissions and errors; `repositories` `files` `commits` `spaces` `jobs` `cards` the routes;
`faults` failures; `app` the ASGI application; `worker` and `guard` the client's process and its confinement to this machine;
`client` and `lanes` what tests use.
"""
