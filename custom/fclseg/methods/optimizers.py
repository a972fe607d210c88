"""torch's optimisers, by the names that ``pretraining.optimizer`` accepts, without torch's compiler."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

from fclseg.presets.settings import PretrainingSettings

Kind = TypeVar("Kind", bound=Optimizer)

MARKED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
"""Methods that torch decorates so that they are not compiled."""


def eager(kind: type[Kind]) -> type[Kind]:
    """The same optimiser, step for step, without the decorators for the compiler.

    These decorators import the compiler, which takes longer than a short round. Nothing is compiled here.
    """
    plain: dict[str, Callable[..., Any]] = {name: inspect.unwrap(getattr(kind, name)) for name in MARKED}
    plain["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), plain)


_SGD, _Adam, _AdamW = eager(SGD), eager(Adam), eager(AdamW)

BUILDERS: dict[str, Callable[[PretrainingSettings, list[Any], float], Optimizer]] = {
    "sgd": lambda settings, parameters, lr: _SGD(
        parameters, lr=lr, momentum=settings.sgd_momentum, weight_decay=settings.weight_decay
    ),
    "adam": lambda settings, parameters, lr: _Adam(parameters, lr=lr),
    "adamw": lambda settings, parameters, lr: _AdamW(parameters, lr=lr, weight_decay=settings.weight_decay),
}
"""The paper pre-trains with SGD and fine-tunes with Adam."""
