"""Made-up patients: a beating heart in a thorax, the scanner that sees it, and data sets of them."""
