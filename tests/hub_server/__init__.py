"""A Hub on loopback: the Hub's HTTP protocol, spoken to the unmodified `huggingface_hub` and `datasets` clients.

What it is. A small web server (Starlette on uvicorn, everything in memory) with repositories, commits, Git LFS, trees, refs,
pull requests, card validation, Space settings, jobs and, where asked for, Xet storage. A client is led to it by `HF_ENDPOINT` and
by nothing else: no client is patched and no function of ours is replaced.

What it proves, and what not. A test that passes here shows that we speak the client's protocol: that the client sends what
we mean, in the order and number of requests we think, and that we understand its errors. It is no evidence of the Hub's own
rules: which cards, sizes, rates, names or files the real Hub accepts. Those that are written down here were read in the
client's source and in the Hub's documentation, and are stricter rather than laxer where these are silent.

In a test, the fixture `hub` (see `fixture.py`) runs functions in a process of their own, in which the Hub is this one:

    def upload(repo: str) -> str:
        return HfApi().upload_file(path_or_fileobj=b"1", path_in_repo="a.txt", repo_id=repo).oid

    def test_a_file_goes_up_as_one_commit(hub):
        repo = hub.repository()
        oid = hub.owner.call(upload, repo)
        assert hub.files(repo)["a.txt"] == b"1"

Source runs as `hub.owner.attempt(exec, source, {})`, a command as `hub.owner.attempt(main, ["push", ...])`; each is a process
of its own with its exit code and what it printed. The fixture `loopback` is the Hub of our own alone, which a test can look
into (`stored`, `requests`) and make fail (`fail`), with more people (`reader`, `stranger`, `nobody`) and other settings
(`client(HF_HUB_OFFLINE="1")`).

By hand, `python -m tests.hub_server` in the clone starts one and prints the lines to set, to try any command offline. With
MSGRPO_HUB_LIVE=1 and a token, the tests that use only what every Hub has run against the real one too.

The files: `store` what is kept; `access` who asks, and refusals; `repositories` `files` `commits` `discussions` `spaces`
`jobs` `xet` `cards` the routes; `faults` what can be made to fail; `app` all of it as an ASGI application; `worker` and `guard`
the process that the client runs in, and what keeps it on this machine; `fixture` what tests see.
"""
