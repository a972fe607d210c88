"""The Python API: one function per verb, and the command line calls the same ones.

``data`` (phantom, check, import_dicom, join, split), ``pretrain``, ``finetune``, ``evaluate``, ``calibrate``,
``segment``, ``batch``, ``label``, ``study``, ``submit``, ``report`` and ``doctor``. Names are looked up when they are
used, so that a program that only segments does not import NVFlare.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fclseg.api import data
    from fclseg.api.evaluating import calibrate, evaluate
    from fclseg.api.finetuning import Finetuned, finetune
    from fclseg.api.health import Health, doctor
    from fclseg.api.labelling import label
    from fclseg.api.pretraining import Pretrained, pretrain
    from fclseg.api.segmenting import batch, segment
    from fclseg.api.studying import report, study
    from fclseg.api.submitting import Submitted, submit
    from fclseg.phantom.dataset import write_phantom
    from fclseg.presets import get_preset
    from fclseg.study.run import Studied

WHERE = {
    "fclseg.api.health": ("Health", "doctor"),
    "fclseg.api.evaluating": ("calibrate", "evaluate"),
    "fclseg.api.finetuning": ("Finetuned", "finetune"),
    "fclseg.api.labelling": ("label",),
    "fclseg.api.pretraining": ("Pretrained", "pretrain"),
    "fclseg.api.segmenting": ("batch", "segment"),
    "fclseg.api.studying": ("report", "study"),
    "fclseg.study.run": ("Studied",),
    "fclseg.api.submitting": ("Submitted", "submit"),
    "fclseg.phantom.dataset": ("write_phantom",),
    "fclseg.presets": ("get_preset",),
}
"""The module of each name."""

__all__ = [
    "Finetuned",
    "Health",
    "Pretrained",
    "Studied",
    "Submitted",
    "batch",
    "calibrate",
    "data",
    "doctor",
    "evaluate",
    "finetune",
    "get_preset",
    "label",
    "pretrain",
    "report",
    "segment",
    "study",
    "submit",
    "write_phantom",
]


def __getattr__(name: str) -> Any:
    if name == "data":
        return import_module("fclseg.api.data")
    for module, names in WHERE.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"fclseg.api has no '{name}'")
