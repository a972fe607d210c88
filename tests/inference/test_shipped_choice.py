"""Which weights are used where no model is given."""

from dataclasses import replace
from pathlib import Path

import pytest

from fclseg.anatomy.families.plain import from_labels
from fclseg.anatomy.records import Volume
from fclseg.anatomy.registry import ANATOMIES
from fclseg.errors import FCLSegError
from fclseg.inference.cases import Cases
from fclseg.inference.shipped import weights_for

VOLUME = Volume("anna", None, None, Path("anna.nii"), None, (1.0, 1.0, 8.0), ANATOMIES["acdc"])


def test_each_anatomy_has_its_own_and_plain_images_take_the_default():
    chosen = {name: weights_for(Cases((replace(VOLUME, anatomy=one),))) for name, one in ANATOMIES.items()}
    folders = {name: path.parent.parent.name for name, path in chosen.items()}
    assert folders == {"acdc": "acdc_unet", "hvsmr": "hvsmr_unet", "nifti": "acdc_unet"}


def test_a_liver_is_not_segmented_by_the_network_of_the_heart():
    liver = from_labels({"structures": {"1": "liver", "2": "tumour"}}, "labels.json")
    with pytest.raises(FCLSegError, match=r"no shipped weights that segment liver, tumour: .* give it with --model"):
        weights_for(Cases((replace(VOLUME, anatomy=liver),)))
