"""The settings that a job has unless somebody chooses others, and the number of rounds that its row needs."""

from collections.abc import Mapping
from typing import Any

from fclseg.methods.exchange import Row
from fclseg.methods.registry import method_class
from fclseg.presets import Preset, get_preset

DEFAULTS: dict[str, Any] = {"preset": "demo", "seed": 0, "fraction": 1.0, "min_sites": 1}


def defaults(row: Row) -> dict[str, Any]:
    """Settings of the committed jobs: small enough to run in a minute. The environment or ``fclseg pretrain`` can
    change them."""
    return completed(row, DEFAULTS)


def completed(row: Row, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A job's settings with what its row needs besides the chosen ones: the network to start from, and the budget."""
    network, changes = chosen.get("network") or row.start, chosen.get("changes") or {}
    changes = budget(row, get_preset(chosen["preset"], **changes), network) | changes
    added = {"network": network, "changes": changes}
    return {**chosen, **{name: value for name, value in added.items() if value}}


def budget(row: Row, preset: Preset, network: str | None = None) -> dict[str, object]:
    """Changes to the preset for a job that trains on labels or starts from a network that already segments.

    Training on labels from a ``network`` is fine-tuning of a network that already segments. The server does not know
    how many labels the sites have. If the preset limits the number of steps, an epoch therefore counts as one step,
    and a site with longer epochs trains fewer (``Supervised.local_epochs``).
    """
    if row.start:
        return preset.adaptation()
    if not method_class(row).wants_labels:
        return {}
    changes = preset.model_finetuning() if network else {}
    return changes | preset.changed(changes).federated_finetuning(steps_per_epoch=1)
