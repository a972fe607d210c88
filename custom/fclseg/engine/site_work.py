"""What a site does with a task, from admission to what leaves: decode, predict the target (PTNU), measure or train,
pass the gate, encode. It uses the exchange plan and the site's memory, but refers to no method by name.

Modules that import torch are imported within the tasks: a task that only measures a distance does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fclseg.engine.gate import OpenGate
from fclseg.engine.messages import PRETRAIN_TASK, SUM_TASK, Message, check_message
from fclseg.engine.site import Site
from fclseg.errors import PublicError
from fclseg.federation.distance import distance
from fclseg.federation.ptnu import predict_target
from fclseg.federation.states import check_state, to_arrays, to_tensors
from fclseg.methods.exchange import DISTANCE, NEVER, OTHERS

if TYPE_CHECKING:
    import torch

    from fclseg.engine.memory import SiteState
    from fclseg.methods.training import RoundResult

Work = Callable[[Site, Message], Message]
"""``measure`` or ``train``."""


def answer(gate: OpenGate, work: Work) -> Message:
    """Do the task that a gate was made for. Returns what is sent to the server."""
    from fclseg.engine.site_coding import decode_download, encode_upload
    from fclseg.engine.site_sums import answer_step, distance_in_sum, update_in_sum

    site, task = gate.site, gate.task
    gate.admit()
    if gate.task_name == SUM_TASK:
        return answer_step(gate)
    if site.codec:
        decode_download(site, site.codec, task)
    told = task.distance
    if gate.task_name == PRETRAIN_TASK and site.settings.row.predicts_target:
        _predict_target(site, task)
    result = gate.release(work(site, task))
    if site.settings.sums_only:
        return update_in_sum(gate, result, told) if gate.task_name == PRETRAIN_TASK else distance_in_sum(gate, result)
    if site.codec:
        encode_upload(site, site.codec, result)
    return result


def _predict_target(site: Site, task: Message) -> None:
    """PTNU (Algorithm 2): replace the distance of a task by the target predicted from the site's own target."""
    if task.distance is None:
        raise PublicError("the task contains no distance, so the target network cannot be predicted")
    with site.memory.held():
        recalled = {} if "online" in task.components else site.memory.recall_global(task.round_number)
        if not recalled and "online" not in task.components:
            raise PublicError("neither this task nor the distance task of its round contained the online network")
        online = task.components.get("online") or to_arrays(recalled["online"])
        own = site.target(task.round_number, online)
    momentum = site.preset.pretraining.ptnu_momentum
    task.components["target"] = predict_target(online, own, task.distance, momentum)
    task.distance = None


def measure(site: Site, task: Message) -> Message:
    """Measure dp_c = d(F_theta, f_xi_c) (Eq. dist_pred_raw); keep the global network for the ``pretrain`` task."""
    number, online = task.round_number, task.components["online"]
    with site.memory.held():
        own = site.target(number, online)
        check_state(online, own, "the server", "online")
        site.memory.keep_global(number, {name: to_tensors(part) for name, part in task.components.items()})
    return Message(distance=distance(online, own), meta={"round": number, "run": task.meta["run"]})


def train(site: Site, task: Message) -> Message:
    """One round: load the site's state, receive, train, save the state, send."""
    from fclseg.engine.memory import SiteState
    from fclseg.engine.run_folder import ENCODER, export_encoder, export_model
    from fclseg.methods.training import optimizer_state
    from fclseg.networks.model_file import MODEL

    number = task.round_number
    with site.memory.held():
        state = site.memory.load_before(number)
        optimizer = _prepare(site, state)
        site.keep_received(task)
        _receive(site, task, new=state is None)
        result = _train(site, optimizer, number)
        made = _outgoing(site, {"round": number, "run": task.meta["run"], **vars(result)})
        _check(site, made, site.name)  # before the state is saved: a failed round leaves no trace
        site.memory.save(SiteState(number, site.method.state_dict(), optimizer_state(optimizer)))
        if not site.settings.row.shares_online and site.memory.on_disk:
            export_encoder(site.memory.folder / ENCODER, site.method, site.settings, number)
            if site.method.segments:
                export_model(site.memory.folder / MODEL, site.method, site.settings)
    return made


def _check(site: Site, message: Message, sender: str) -> None:
    """Refuse unknown components, wrong shapes or types, and values that are not finite."""
    known = {flow.component for flow in site.settings.row.flows} - {DISTANCE}
    check_message(message, {name: to_arrays(site.method.send(name)) for name in known}, sender)


def _prepare(site: Site, state: SiteState | None) -> torch.optim.Optimizer:
    """Restore method and optimiser to the start of the round; without a state, to the initial ones."""
    from fclseg.methods.training import load_optimizer_state, make_optimizer

    site.method.load_state_dict(state.method if state else site.build_method().state_dict())
    optimizer = make_optimizer(site.method)
    load_optimizer_state(optimizer, state.optimizer if state else {})
    return optimizer


def _receive(site: Site, task: Message, new: bool) -> None:
    """Load everything that came down, with this task or with the distance task of this round, and the predicted target.

    A ``new`` site first uses the global network as its own online and target network. A trained network would learn
    nothing from an initial target, and it may be that no target comes down.
    """
    method = site.method
    for name, state in site.memory.recall_global(task.round_number).items():
        task.components.setdefault(name, to_arrays(state))
    _check(site, task, "the server")
    received = {name: to_tensors(arrays) for name, arrays in task.components.items()}
    if new and "online" in received:
        own = ("online", "target") if method.has_target else ("online",)
        method.receive(dict.fromkeys(own, received["online"]))
    method.receive(received)
    for name, states in task.others.items():
        method.receive_others(name, {other: to_tensors(arrays) for other, arrays in states.items()})


def _train(site: Site, optimizer: torch.optim.Optimizer, number: int) -> RoundResult:
    from fclseg.methods.training import cosine_lr, train_round

    return train_round(
        site.method,
        site.sampler,
        optimizer,
        lr=cosine_lr(site.method.learning_rate, number, site.preset.pretraining.rounds),
        epochs=site.method.local_epochs(site.sampler),
        seed=site.settings.seed,
        site=site.name,
        round_number=number,
    )


def _outgoing(site: Site, meta: dict[str, Any]) -> Message:
    """All components that ever go up. The gate drops those that are not sent in this round."""
    message = Message(meta=meta)
    for flow in site.settings.row.flows:
        if flow.up == NEVER or flow.component == DISTANCE:
            continue
        arrays = to_arrays(site.method.send(flow.component))
        if flow.combine == OTHERS:
            message.others[flow.component] = {site.name: arrays}
        else:
            message.components[flow.component] = arrays
    return message
