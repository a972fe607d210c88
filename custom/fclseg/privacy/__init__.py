"""Protections of features and updates before they leave a site: one file each, combined by ``vectors``.

docs/privacy.md reports what each of them was measured to stop, and what it costs.
"""
