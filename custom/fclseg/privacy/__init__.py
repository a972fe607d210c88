"""What a site does to features and updates before they leave: each protection in one file, composed by ``vectors``.

docs/privacy.md says what each of them has been measured to stop, and what it costs.
"""
