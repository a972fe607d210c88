"""Checks the bundles in the order of the MONAI model zoo's own checks, and exports them to TorchScript and ONNX.

    python -m fclseg.finetune.bundle_check
    python -m fclseg.finetune.bundle_check acdc_unet

The zoo requires a metadata file, a version with an entry in the changelog, metadata that follow the schema, a network
whose output has the described shape, and weights that can be exported to TorchScript. Here, an exported network must
also give the same labels as the original.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.bundle import ckpt_export, verify_metadata, verify_net_in_out

from fclseg.errors import FCLSegError
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.model_file import load_model
from fclseg.networks.plain_weights import plain_weights
from fclseg.resources import BUNDLES, bundle_folder, resource_folder, resource_names, shipped_model

FILES = ("configs/metadata.json", "configs/inference.json", "LICENSE", "docs/README.md", "docs/data_license.txt")
ONNX = ("onnx", "onnxscript", "onnxruntime")


class Skip(Exception):
    """A check that does not apply, with the reason."""


def check_bundle(name: str) -> Iterator[str]:
    """One line per check. A failed check raises ``FCLSegError``."""
    for title, check in CHECKS.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                check(name)
            yield f"{name}: {title}: ok"
        except Skip as reason:
            yield f"{name}: {title}: skipped, {reason}"
        except (ValueError, RuntimeError, LookupError, OSError) as error:
            raise FCLSegError(f"{name}: {title}: {error}") from error


def _files(name: str) -> None:
    if missing := [file for file in FILES if not (bundle_folder(name) / file).is_file()]:
        raise ValueError(f"{missing[0]} is missing")


def _version(name: str) -> None:
    metadata = _metadata(name)
    if metadata["version"] not in metadata["changelog"]:
        raise ValueError(f"version {metadata['version']} is not in the changelog")


def _format(name: str) -> None:
    schema = resource_folder(BUNDLES) / "metadata_schema.json"
    verify_metadata(meta_file=str(bundle_folder(name) / "configs/metadata.json"), filepath=str(schema))


def _scores(name: str) -> None:
    _weights(name)
    if not _metadata(name)["eval_metrics"]:
        raise ValueError("the metadata do not say how good the weights are")


def _shapes(name: str) -> None:
    _weights(name)
    verify_net_in_out("network_def", n=4, device="cpu", **_arguments(name))


def _torchscript(name: str) -> None:
    network = _weights(name)
    checkpoint = plain_weights(shipped_model(name))
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, "model.ts")
        ckpt_export("network_def", filepath=str(exported), ckpt_file=str(checkpoint), **_arguments(name))
        script = torch.jit.load(exported)
    _compare(network, lambda images: script(images))


def _onnx(name: str) -> None:
    network = _weights(name)
    if absent := [library for library in ONNX if importlib.util.find_spec(library) is None]:
        raise Skip(f"{absent[0]} is not installed (pip install 'fclseg[onnx]')")
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.onnx"))
        example = torch.zeros(2, 1, 64, 64)
        axes = {0: torch.export.Dim("slices", min=1, max=512)}
        torch.onnx.export(network, (example,), path, input_names=["image"], dynamic_shapes=(axes,), dynamo=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        _compare(network, lambda images: torch.from_numpy(session.run(None, {"image": images.numpy()})[0]))


CHECKS: dict[str, Callable[[str], None]] = {
    "files": _files,
    "version and changelog": _version,
    "metadata": _format,
    "scores in the metadata": _scores,
    "shape of the output": _shapes,
    "export to TorchScript": _torchscript,
    "export to ONNX": _onnx,
}


def _metadata(name: str) -> dict[str, Any]:
    return json.loads((bundle_folder(name) / "configs/metadata.json").read_text(encoding="utf-8"))


def _weights(name: str) -> FreezableUNet:
    if not shipped_model(name).is_file():
        raise Skip("the bundle has no weights, because its structures are the user's")
    return load_model(shipped_model(name)).network


def _arguments(name: str) -> dict[str, str]:
    folder = bundle_folder(name)
    configs = {"meta_file": "configs/metadata.json", "config_file": "configs/inference.json"}
    return {key: str(folder / file) for key, file in configs.items()} | {"bundle_root": str(folder)}


def _compare(network: FreezableUNet, exported: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Check for the same labels on random images, except for pixels where two classes are equal up to rounding."""
    images = torch.rand(3, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, found = network(images), exported(images)
    if not np.allclose(expected.numpy(), found.numpy(), atol=1e-4):
        raise ValueError("the exported network gives other scores")
    first, second = expected.topk(2, dim=1).values.unbind(dim=1)
    clear = first - second > 1e-3
    if not torch.equal(expected.argmax(1)[clear], found.argmax(1)[clear]):
        raise ValueError("the exported network gives other labels")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*", metavar="BUNDLE", help="default: all")
    logging.disable(logging.INFO)  # MONAI prints its arguments
    try:
        for name in parser.parse_args().bundles or resource_names(BUNDLES):
            for line in check_bundle(name):
                print(line, flush=True)
    except FCLSegError as error:
        print(f"fclseg: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
