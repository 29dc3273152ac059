"""`msgrpo space`: the demo on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
from typing import get_args

from msgrpo_hub.cli.flags import field_docs
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.load_options import Device, LoadOptions


def add_space(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the demo on this machine: watch, compare, play and change the rules in a browser. The environment variables "
        "GRADIO_SERVER_NAME and GRADIO_SERVER_PORT set the address it listens on."
    )
    parser.add_argument("--device", choices=get_args(Device), help=f"{field_docs(LoadOptions)['device']} Default: auto")
    parser.set_defaults(run=_space)


def _space(options: argparse.Namespace) -> None:
    if importlib.util.find_spec("gradio") is None:
        raise UserError("the demo needs gradio, which is not installed: run `pip install 'msgrpo-hub[space]'`")
    from msgrpo_hub.hub.spaces import app_folder

    app = app_folder() / "app.py"
    if not app.exists():
        raise UserError(f"no demo at {str(app)!r}: expected it in an install or a clone of msgrpo-hub")
    if options.device:
        os.environ["MSGRPO_DEVICE"] = options.device
    print("Next: open the address below; `msgrpo push space USER/NAME` deploys it", file=sys.stderr)
    sys.path.insert(0, str(app.parent))  # as on a Space, whose root is this folder
    runpy.run_path(str(app), run_name="__main__")
