"""Algorithm 1 without a network: rounds, aggregation, what a site does in a round, and everything they keep.

A transport carries messages between ``rounds.py`` (the server) and ``site_work.py`` (a site). There are three:
``in_process.py`` in this process, and those of ``fclseg.flare`` over NVFlare's simulator and over real sites.
"""
