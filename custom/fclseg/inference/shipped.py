"""The weights that are used if no model is given."""

from pathlib import Path

from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.errors import FCLSegError
from fclseg.inference.cases import Cases
from fclseg.resources import shipped_model


def weights_for(cases: Cases) -> Path:
    """The weights of the bundle for these images. Images that nothing is known about count as short-axis hearts; those
    whose labels.json names other structures need a model of their own."""
    anatomy = next(iter(cases)).anatomy
    own = shipped_model(anatomy.bundle)
    if own.is_file():
        return own
    if anatomy.structures:
        names = ", ".join(structure.name for structure in anatomy.structures)
        raise FCLSegError(
            f"there are no shipped weights that segment {names}: train a model with 'fclseg finetune' and give it "
            "with --model"
        )
    return shipped_model(ANATOMIES[DEFAULT].bundle)
