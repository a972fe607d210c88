"""The Python API for notebooks and scripts: pre-train on a folder, fine-tune, segment."""

from fclseg.api.evaluating import evaluate
from fclseg.api.finetuning import Finetuned, finetune, segment
from fclseg.api.pretraining import Pretrained, pretrain
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset

__all__ = ["Finetuned", "Pretrained", "evaluate", "finetune", "get_preset", "pretrain", "segment", "write_phantom"]
