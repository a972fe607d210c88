"""Which weights of a bundle a preset starts from."""

from fclseg.networks.interface import widths
from fclseg.networks.model_file import load_model
from fclseg.presets import PRESETS
from fclseg.resources import shipped_model


def test_weights_of_a_preset_fit_its_network():
    for name in ("demo", "small", "standard"):
        model, networks = load_model(shipped_model("acdc_unet", name)), PRESETS[name].networks
        assert widths(model.network.encoder) == networks.channels and model.network.decoder.patch == networks.patch


def test_a_bundle_with_one_file_has_it_for_every_preset():
    assert shipped_model("hvsmr_unet", "small") == shipped_model("hvsmr_unet") == shipped_model("hvsmr_unet", "paper")
    assert shipped_model("acdc_unet", "small") != shipped_model("acdc_unet")
