"""Secure sums (Bonawitz et al. 2017): the server learns the sum of what sites send, and nothing about a single site.

The protocol has five steps, each one task of the server (``docs/secure_sums.md``): keys, shares, the masked vectors,
agreement on who answered, and the shares that remove the masks. ``member`` is the site's side, ``collector`` the
server's. Nothing here knows NVFlare or networks.
"""
