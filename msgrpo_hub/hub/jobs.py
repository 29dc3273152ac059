"""Commands on the Hub's machines: `huggingface_hub.run_uv_job` runs `msgrpo` there, and its log is followed from here.

A job runs `uv run --with PACKAGE --module msgrpo_hub …`. The package is a release of the index, or a wheel that was uploaded
to the run's private repository, which the job sees as a folder. Prices are those that the Hub states when the job is sent.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi, JobHardwareInfo, JobInfo, Volume, constants, get_token

from msgrpo_hub import __version__
from msgrpo_hub.downloads.hub_errors import AGAIN, hub_errors
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.hub.checkpoints import MARKER, WHEELS, write_marker
from msgrpo_hub.hub.uploading import Target, check_token, upload

MOUNT = "/msgrpo-package"
"""Where a job sees the folder with its wheel."""

PYTHON = "3.12"
"""The Python of a job: that of the Hub's image for uv."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_UNITS = {"second": 1, "minute": 60, "hour": 3600}
"""Units of the Hub's prices, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a machine costs, as the Hub says."""

    hardware: JobHardwareInfo

    @property
    def rate(self) -> str:
        """Such as `$0.0250 a minute`."""
        return f"${self.hardware.unit_cost_usd:.4f} a {self.hardware.unit_label}"

    @property
    def machine(self) -> str:
        """What it is, such as `a10g-large (12 vCPU, 46 GB; 1 × A10G, 24 GB)`."""
        own, gpu = self.hardware, self.hardware.accelerator
        cards = f"; {gpu.quantity} × {gpu.model}, {gpu.vram}" if gpu else ""
        return f"{own.name} ({own.cpu}, {own.ram}{cards})"

    @property
    def gpus(self) -> int:
        """GPUs of the machine; 0 for a processor."""
        gpu = self.hardware.accelerator
        return int(gpu.quantity) if gpu and gpu.quantity.isdecimal() else int(gpu is not None)

    def of(self, seconds: float) -> float | None:
        """The dollars for a time; None if the unit of the price is unknown."""
        unit = _UNITS.get(self.hardware.unit_label)
        return None if unit is None else self.hardware.unit_cost_usd * seconds / unit


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command as it is to run on the Hub."""

    arguments: tuple[str, ...]
    """Of `msgrpo`."""
    state: str
    """The private repository of the run."""
    price: Price
    timeout: int
    """Seconds after which an attempt is stopped."""
    attempts: int
    """How often the Hub starts it at most."""
    packages: tuple[str, ...] = ()
    """Extras of the package, such as `quantized`."""
    others: tuple[str, ...] = ()
    """Packages beside it."""
    several_processes: bool = False
    """Whether every GPU of the machine gets a process."""

    @property
    def most(self) -> float | None:
        """The most that it can cost, in dollars."""
        return self.price.of(self.timeout * self.attempts)

    @property
    def words(self) -> list[str]:
        """The arguments of `python`: those of `msgrpo`, under torchrun where several GPUs share the work."""
        own = ["--module", "msgrpo_hub", *self.arguments]
        count = self.price.gpus if self.several_processes else 1
        return own if count < 2 else ["--module", "torch.distributed.run", f"--nproc-per-node={count}", *own]


def read_timeout(text: str) -> int:
    """The seconds of a time limit.

    >>> read_timeout("90m"), read_timeout("1.5h"), read_timeout("30")
    (5400, 5400, 30)
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smhd]?)", text)
    if not found or not (seconds := int(float(found[1]) * _SECONDS[found[2] or "s"])):
        raise UserError(f"--timeout {text!r}: expected a number with s, m, h or d, such as 90m or 6h")
    return seconds


def find_price(flavor: str) -> Price:
    """The price of a flavor, asked from the Hub. Raises `UserError` if it has no such flavor."""
    with hub_errors("Jobs"):
        known = {hardware.name: hardware for hardware in HfApi().list_jobs_hardware()}
    if flavor not in known:
        raise unknown("flavor", flavor, known)
    return Price(hardware=known[flavor])


def read_secrets(names: Sequence[str]) -> dict[str, str]:
    """The token, and variables of this environment by their names; the Hub keeps them encrypted, and no job shows them.

    Raises:
        UserError: a variable is not set, or no token is found.
    """
    if missing := [name for name in names if not os.environ.get(name)]:
        raise UserError(f"--secret {missing[0]}: expected a variable of this environment that is set")
    token = get_token()
    if not token:
        raise UserError("no token for the Hub was found: run `hf auth login`, or set HF_TOKEN")
    return {"HF_TOKEN": token} | {name: os.environ[name] for name in names}


def check_wheel(path: Path) -> None:
    """Raises `UserError` unless the file is a wheel of this package."""
    if not path.is_file() or not re.fullmatch(r"msgrpo_hub-[\w.+!]+-py3-none-any\.whl", path.name):
        raise UserError(f"--wheel {str(path)!r}: expected a wheel of msgrpo-hub, such as `make wheel` leaves in dist/")


def upload_wheel(path: Path, state: str) -> Volume:
    """Puts a wheel into the run's private repository, under the hash of its content. Returns its folder, as the job sees it."""
    check_wheel(path)
    folder = f"{WHEELS}/{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    with TemporaryDirectory() as staged:
        (Path(staged) / folder).mkdir(parents=True)
        shutil.copyfile(path, Path(staged) / folder / path.name)
        write_marker(Path(staged))
        upload(Path(staged), Target(repo_id=state, private=True), message=f"Wheel {path.name}", marker=MARKER)
    return Volume(type="model", source=state, mount_path=MOUNT, path=folder, read_only=True)


def requirement(job: Job, wheel: Path | None) -> str:
    """The package as uv asks for it."""
    name = "msgrpo-hub" + (f"[{','.join(job.packages)}]" if job.packages else "")
    return f"{name} @ file://{MOUNT}/{wheel.name}" if wheel else f"{name}=={__version__}"


def submit(job: Job, secrets: Mapping[str, str], wheel: Path | None = None) -> JobInfo:
    """Sends a job.

    Args:
        job: what to run.
        secrets: its secret environment variables, the token among them.
        wheel: the package; None is the release of this version in the index.

    Raises:
        UserError: the Hub refuses it.
    """
    more = attempts_of(job)
    check_token(Target(repo_id=job.state))
    volumes = [upload_wheel(wheel, job.state)] if wheel else None
    elsewhere = constants.ENDPOINT != "https://huggingface.co"
    first, *others = job.words
    with _maybe_sent(), hub_errors("Jobs"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is experimental", UserWarning)
        sent: JobInfo = HfApi().run_uv_job(
            first,
            script_args=others,
            dependencies=[requirement(job, wheel), *job.others],
            python=PYTHON,
            env={"HF_ENDPOINT": constants.ENDPOINT} if elsewhere else {},
            secrets=dict(secrets),
            flavor=job.price.hardware.name,
            timeout=job.timeout,
            name=f"msgrpo-{job.arguments[0]}",
            volumes=volumes,
            **more,
        )
    return sent


@contextmanager
def _maybe_sent() -> Iterator[None]:
    """Says so where an answer of the Hub is lost: the job may run, and cost, all the same."""
    try:
        yield
    except UserError as error:
        why, again, _ = str(error).partition(AGAIN)
        if not again or "rate limit" in why:  # refused
            raise
        why = why.removesuffix(": check the network, then ").removesuffix(": ")
        raise UserError(f"{why}: look with `hf jobs ps` whether the job runs, before the same command sends another") from error


def attempts_of(job: Job) -> dict[str, Any]:
    """The argument of the client for more than one attempt. Raises `UserError` if it is too old to have it."""
    if job.attempts == 1:
        return {}
    if "attempts" not in signature(HfApi.run_uv_job).parameters:
        raise UserError(f"--attempts {job.attempts}: expected a newer client, run `pip install --upgrade huggingface_hub`")
    return {"attempts": job.attempts}


def follow(sent: JobInfo) -> Iterator[str]:
    """The lines of a job's log as they are written, until it ends."""
    with hub_errors("Jobs"):
        yield from HfApi().fetch_job_logs(job_id=sent.id, namespace=sent.owner.name, follow=True)


def inspect(sent: JobInfo) -> JobInfo:
    """The job as it is now."""
    with hub_errors("Jobs"):
        return HfApi().inspect_job(job_id=sent.id, namespace=sent.owner.name)
