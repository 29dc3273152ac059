"""Commands on the Hub's machines: `huggingface_hub.run_uv_job` runs `msgrpo` there, and its log is followed from here.

A job runs `uv run --with PACKAGE --module msgrpo_hub …`: a release, or a wheel in the run's private repository.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, JobHardwareInfo, JobInfo, Volume, constants

from msgrpo_hub import __version__
from msgrpo_hub.downloads.client import hub_errors
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.hub.checkpoints import MARKER
from msgrpo_hub.hub.uploading import Files, Target, upload

MOUNT = "/msgrpo-package"
"""Where a job sees the folder with its wheel."""

_PYTHON = "3.12"  # of the Hub's image for uv
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_UNITS = {"second": 1, "minute": 60, "hour": 3600}  # of the Hub's prices


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command as it will run on the Hub."""

    arguments: tuple[str, ...]
    state: str
    hardware: JobHardwareInfo
    timeout: int
    attempts: int
    packages: tuple[str, ...] = ()
    """Extras of the package, such as `quantized`."""
    others: tuple[str, ...] = ()
    several_processes: bool = False
    """Whether every GPU of the machine gets a process."""

    def cost(self, seconds: float) -> float | None:
        """The dollars for a time; None if the unit of the price is unknown."""
        unit = _UNITS.get(self.hardware.unit_label)
        return None if unit is None else self.hardware.unit_cost_usd * seconds / unit

    @property
    def machine(self) -> str:
        """The machine and its price, such as `a10g-large (12 vCPU, 46 GB; 1 × A10G, 24 GB): $0.0250 a minute`."""
        own, gpu = self.hardware, self.hardware.accelerator
        cards = f"; {gpu.quantity} × {gpu.model}, {gpu.vram}" if gpu else ""
        return f"{own.name} ({own.cpu}, {own.ram}{cards}): ${own.unit_cost_usd:.4f} a {own.unit_label}"


def read_timeout(text: str) -> int:
    """The seconds of a time limit.

    >>> read_timeout("90m"), read_timeout("1.5h"), read_timeout("30")
    (5400, 5400, 30)
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smhd]?)", text)
    if not found or not (seconds := int(float(found[1]) * _SECONDS[found[2] or "s"])):
        raise UserError(f"--timeout {text!r}: expected a number with s, m, h or d, such as 90m or 6h")
    return seconds


def find_hardware(flavor: str) -> JobHardwareInfo:
    """A machine and its price. Raises `UserError` if the Hub has no such flavor."""
    with hub_errors("Jobs"):
        known = {hardware.name: hardware for hardware in HfApi().list_jobs_hardware()}
    if flavor not in known:
        raise unknown("flavor", flavor, known)
    return known[flavor]


def submit(job: Job, secrets: Mapping[str, str], wheel: Path | None = None) -> JobInfo:
    """Sends a job with its secret variables and a wheel; None uses the release. Raises `UserError` if the Hub refuses it."""
    # 1) the package
    target, volumes = Target(repo_id=job.state, private=True), []
    name = "msgrpo-hub" + (f"[{','.join(job.packages)}]" if job.packages else "")
    package = f"{name}=={__version__}"
    if wheel:
        folder = f"wheels/{hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]}"
        files: Files = {**MARKER, f"{folder}/{wheel.name}": wheel}
        upload(lambda *_: files, target, message=f"Wheel {wheel.name}", marker=next(iter(MARKER)))
        volumes = [Volume(type="model", source=job.state, mount_path=MOUNT, path=folder, read_only=True)]
        package = f"{name} @ file://{MOUNT}/{wheel.name}"
    # 2) the arguments of `python`: `msgrpo` with its arguments, under torchrun if several GPUs share the work
    words, gpu = ["msgrpo_hub", *job.arguments], job.hardware.accelerator
    gpus = int(gpu.quantity) if job.several_processes and gpu and gpu.quantity.isdecimal() else 1
    if gpus > 1:
        words = ["torch.distributed.run", f"--nproc-per-node={gpus}", "--module", *words]
    elsewhere = constants.ENDPOINT != "https://huggingface.co"
    # 3) send it
    again = "look with `hf jobs ps` whether the job runs, before the same command sends another"
    with hub_errors("Jobs", again), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is experimental", UserWarning)
        sent: JobInfo = HfApi().run_uv_job(
            "--module",
            script_args=words,
            dependencies=[package, *job.others],
            python=_PYTHON,
            env={"HF_ENDPOINT": constants.ENDPOINT} if elsewhere else {},
            secrets=dict(secrets),
            flavor=job.hardware.name,
            timeout=job.timeout,
            name=f"msgrpo-{job.arguments[0]}",
            volumes=volumes or None,
            **({"attempts": job.attempts} if job.attempts > 1 else {}),
        )
        return sent


def follow(sent: JobInfo, show: Callable[[str], object]) -> JobInfo:
    """Shows the lines of a job's log until the job ends, and returns its final state."""
    watch = f"watch the job with `hf jobs logs --follow {sent.id}`, or end it with `hf jobs cancel {sent.id}`"
    api, owner = HfApi(), sent.owner.name
    try:
        with hub_errors("Jobs", watch):
            for line in api.fetch_job_logs(job_id=sent.id, namespace=owner, follow=True):
                show(line)
            return api.inspect_job(job_id=sent.id, namespace=owner)
    except KeyboardInterrupt as end:
        end.add_note(f"the job goes on: {watch}")
        raise
