"""What an attacker gets out of what leaves a site: each attack in one file. docs/privacy.md shows their figures.

The attacker is another site or the server: it has the global networks, all vectors that leave, and images of patients
of its own. It knows which protections are on.
"""
