"""The maths between sites: averaging, distances, PTNU and the exchange plan. No NVFlare import."""
