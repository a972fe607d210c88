"""The weights that are used if no model is given."""

from pathlib import Path

from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.inference.cases import Cases
from fclseg.resources import shipped_model


def weights_for(cases: Cases) -> Path:
    """The weights of the bundle for these images; those of the default bundle if the anatomy is unknown."""
    own = shipped_model(next(iter(cases)).anatomy.bundle)
    return own if own.is_file() else shipped_model(ANATOMIES[DEFAULT].bundle)
