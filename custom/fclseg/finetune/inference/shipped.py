"""The weights that are used where no model is given."""

from pathlib import Path

from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.finetune.inference.cases import Cases
from fclseg.resources import shipped_model


def weights_for(cases: Cases) -> Path:
    """The weights of the bundle for these images; for images that do not say what they show, the default bundle's."""
    own = shipped_model(next(iter(cases)).anatomy.bundle)
    return own if own.is_file() else shipped_model(ANATOMIES[DEFAULT].bundle)
