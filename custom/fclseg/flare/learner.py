"""The one learner. It uses the exchange plan and the site's memory, but refers to no method by name.

Modules that import torch are imported within the tasks, so that NVFlare can connect without waiting for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.learner_spec import Learner

from fclseg.federation.distance import distance
from fclseg.federation.exchange import DISTANCE, NEVER, OTHERS
from fclseg.federation.states import check_state, to_arrays, to_tensors
from fclseg.flare import diagnostics
from fclseg.flare.curves import send_curves
from fclseg.flare.messages import Message, check_message
from fclseg.flare.place import Place
from fclseg.flare.site import Site
from fclseg.flare.slots import training_slot

if TYPE_CHECKING:
    import torch

    from fclseg.flare.memory import SiteState
    from fclseg.methods.training import RoundResult


class SiteLearner(Learner):
    """Answers the tasks ``distance`` (one number) and ``pretrain`` (one round of local training)."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: Site | None = None

    def distance(self, data: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Message:
        """Measure dp_c = d(F_theta, f_xi_c) (Eq. dist_pred_raw); keep the global network for the ``pretrain`` task."""
        site, message = self.open(data, fl_ctx)
        round_number, memory = message.round_number, site.memory
        with memory.held():
            own = site.target(round_number, message.components["online"])
            check_state(message.components["online"], own, "the server", "online")
            memory.keep_global(round_number, {name: to_tensors(part) for name, part in message.components.items()})
        answer = distance(message.components["online"], own)
        return Message(distance=answer, meta={"round": round_number, "run": message.meta["run"]})

    def train(self, data: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Message:
        """One round: load the site's state, receive, train, save the state, send."""
        import torch

        from fclseg.flare.memory import SiteState
        from fclseg.flare.runs.run_folder import ENCODER, MODEL, export_encoder, export_model
        from fclseg.methods.training import optimizer_state

        site, message = self.open(data, fl_ctx)
        round_number, threads = message.round_number, site.place.threads
        with training_slot(threads), site.memory.held():
            torch.set_num_threads(threads)
            state = site.memory.load_before(round_number)
            optimizer = self._prepare(state)
            before = diagnostics.before(site, message)
            site.keep_received(message)
            self._receive(message, new=state is None)
            result = self._train(optimizer, round_number)
            answer = self._outgoing({"round": round_number, "run": message.meta["run"], **vars(result)})
            self._check(answer, site.place.name)  # before the state is saved: a failed round leaves no trace
            site.memory.save(SiteState(round_number, site.method.state_dict(), optimizer_state(optimizer)))
            if not site.settings.row.shares_online:
                export_encoder(site.memory.folder / ENCODER, site.method, site.settings, round_number)
                if site.method.segments:
                    export_model(site.memory.folder / MODEL, site.method, site.settings)
        send_curves(self, fl_ctx, round_number, loss=result.loss, feature_std=result.feature_std)
        answer.components.update(before | diagnostics.after(site))
        return answer

    def open(self, data: Shareable, fl_ctx: FLContext) -> tuple[Site, Message]:
        """The site in the run that a task belongs to, and the task's message.

        The site's objects are rebuilt when the run or the site's own settings change.
        """
        message = Message.from_shareable(data)
        site = Site.of(Place.of_site(fl_ctx), message)
        if self._opened is None or site != self._opened:
            self._opened = site
        return self._opened, message

    @property
    def _site(self) -> Site:
        assert self._opened is not None, "a task is opened before anything else"
        return self._opened

    def _check(self, message: Message, sender: str) -> None:
        """Refuse unknown components, wrong shapes or types, and values that are not finite."""
        known = {flow.component for flow in self._site.settings.row.flows} - {DISTANCE}
        check_message(message, {name: to_arrays(self._site.method.send(name)) for name in known}, sender)

    def _prepare(self, state: SiteState | None) -> torch.optim.Optimizer:
        """Restore method and optimiser to the start of the round; without a state, to the initial ones."""
        from fclseg.methods.training import load_optimizer_state, make_optimizer

        site = self._site
        site.method.load_state_dict(state.method if state else site.build_method().state_dict())
        optimizer = make_optimizer(site.method)
        load_optimizer_state(optimizer, state.optimizer if state else {})
        return optimizer

    def _receive(self, message: Message, new: bool) -> None:
        """Load everything that came down: with this task, with the distance task of this round, or from a filter that
        predicted it.

        A ``new`` site first uses the global network as its own online and target network. A trained network would
        learn nothing from an initial target, and it may be that no target comes down.
        """
        method = self._site.method
        for name, state in self._site.memory.recall_global(message.round_number).items():
            message.components.setdefault(name, to_arrays(state))
        self._check(message, "the server")
        received = {name: to_tensors(arrays) for name, arrays in message.components.items()}
        if new and "online" in received:
            own = ("online", "target") if method.has_target else ("online",)
            method.receive(dict.fromkeys(own, received["online"]))
        method.receive(received)
        for name, states in message.others.items():
            method.receive_others(name, {site: to_tensors(arrays) for site, arrays in states.items()})

    def _train(self, optimizer: torch.optim.Optimizer, round_number: int) -> RoundResult:
        from fclseg.methods.training import cosine_lr, train_round

        site, preset = self._site, self._site.preset
        return train_round(
            site.method,
            site.sampler,
            optimizer,
            lr=cosine_lr(site.method.learning_rate, round_number, preset.pretraining.rounds),
            epochs=preset.pretraining.local_epochs,
            seed=site.settings.seed,
            site=site.place.name,
            round_number=round_number,
        )

    def _outgoing(self, meta: dict[str, Any]) -> Message:
        """All components that ever go up. The gate drops those that are not sent in this round."""
        message = Message(meta=meta)
        for flow in self._site.settings.row.flows:
            if flow.up == NEVER or flow.component == DISTANCE:
                continue
            arrays = to_arrays(self._site.method.send(flow.component))
            if flow.combine == OTHERS:
                message.others[flow.component] = {self._site.place.name: arrays}
            else:
                message.components[flow.component] = arrays
        return message
