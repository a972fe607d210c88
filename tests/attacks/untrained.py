"""The size of the networks that are attacked."""

from fclseg.presets import get_preset

PRESET = get_preset("demo", bank_size=96, channels=(4, 8, 16))
