"""The exchange plan: for every row of the paper, which component crosses the wire, in which direction, and when.

This one table is read by the job generator, the controller, the learner and the byte accounting. A component is a
sub-module of the method (``fclseg.methods.base``); ``distance`` is the one scalar that PTNU and DP exchange.
"""

from dataclasses import dataclass, field
from typing import Any

from fclseg.errors import FCLSegError

ALWAYS, NEVER, CALIBRATION = "always", "never", "calibration"
"""When a component crosses: each round, not at all, or every R-th round (``pretraining.calibration_rounds``)."""

MEAN, OTHERS = "mean", "others"
"""How the server combines a component: the weighted mean n_c / n, or, for each site, what the *other* sites sent."""

DISTANCE = "distance"

ENCODER, NETWORK, MODEL = "encoder", "network", "model"
"""What fine-tuning gets from a run: an encoder, a whole network that predicts something else, or a network that already
segments without labels."""

SHIPPED = "shipped"
"""Stands for the weights that come with the bundle of a run's anatomy."""


@dataclass(frozen=True)
class Flow:
    """One component: when it goes up, when it comes down, and how the server combines it."""

    component: str
    up: str = ALWAYS
    down: str = ALWAYS
    combine: str = MEAN
    paper_counts_up: bool = True  # False if the upload happens but is not included in the paper's figure


@dataclass(frozen=True)
class Row:
    """One row of the paper's tables: a method and its exchange plan."""

    job: str  # folder below jobs/
    title: str  # the paper's name for the row
    method: str  # "module:Class" below fclseg.methods
    flows: tuple[Flow, ...]
    settings: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the method
    codec: str = "plain"  # how networks and features are encoded, unless the run's settings say otherwise
    hands_over: str = ENCODER
    start: str | None = None  # the network that the committed job starts from; None: random weights

    @property
    def shares_online(self) -> bool:
        """Whether the run ends with one global encoder. Otherwise every site keeps its own."""
        return any(flow.component == "online" and flow.up != NEVER for flow in self.flows)

    @property
    def predicts_target(self) -> bool:
        """PTNU: the site predicts the target network from a distance instead of downloading it."""
        return any(flow.component == DISTANCE and flow.down == ALWAYS for flow in self.flows)

    @property
    def predicts_distance(self) -> bool:
        """DP: the sites measure the distance, so that the target network is uploaded only for calibration."""
        return any(flow.component == DISTANCE and flow.up == ALWAYS for flow in self.flows)


_BYOL = (Flow("online"), Flow("predictor"))
_MOCO = (Flow("online"), Flow("target"))
_DP = (*_BYOL, Flow("target", up=CALIBRATION, down=NEVER), Flow(DISTANCE))
_TEACHER = (Flow("online"), Flow("target"))
_BANK = Flow("bank", combine=OTHERS, paper_counts_up=False)

ROWS = {
    row.job: row
    for row in (
        Row("fedbyol", "FedBYOL", "byol:BYOL", _BYOL),
        Row("fclopt", "FCLOpt", "byol:BYOL", (*_BYOL, Flow("target"))),
        Row(
            "fclopt_ptnu",
            "FCLOpt-PTNU",
            "byol:BYOL",
            (*_BYOL, Flow("target", down=NEVER), Flow(DISTANCE, up=NEVER)),
        ),
        Row("fclopt_dp", "FCLOpt-PTNU-DP", "byol:BYOL", _DP),
        Row("fclopt_dp_tiny", "FCLOpt-PTNU-DP, tiny", "byol:BYOL", _DP, codec="tiny"),
        Row("fedmoco", "FedMoCo", "moco:MoCo", _MOCO),
        Row("fcl", "FCL", "fcl:FCL", (*_MOCO, _BANK)),
        Row("fcl_own", "FCL, own bank", "fcl:FCL", _MOCO, {"fe": False}),
        Row("fcl_no_fe", "Without FE", "fcl:FCL", _MOCO, {"fe": False, "ns": False, "gsm": False}),
        Row("fcl_fe", "FE", "fcl:FCL", (*_MOCO, _BANK), {"ns": False, "gsm": False}),
        Row("fcl_fe_ns", "FE+NS", "fcl:FCL", (*_MOCO, _BANK), {"gsm": False}),
        Row("fedu", "FedU", "fedu:FedU", _BYOL),
        Row("fedsimclr", "FedSimCLR", "simclr:SimCLR", (Flow("online"),)),
        Row("fedswav", "FedSwAV", "swav:SwAV", (Flow("online"), Flow("prototypes"))),
        Row("fedrotation", "FedRotation", "rotation:Rotation", (Flow("online"), Flow("classifier"))),
        Row("fedca", "FedCA", "fedca:FedCA", (Flow("online"), Flow("dictionary", combine=OTHERS))),
        Row("fedgl", "FedGL", "fedgl:GlobalLocal", (Flow("online"), Flow("decoder"))),
        Row("local_cl", "Local CL", "fedgl:GlobalLocal", ()),
        Row("phantom", "Phantom", "phantom:Phantom", (Flow("online"),), hands_over=MODEL, start=SHIPPED),
        Row("motion", "Motion", "motion:Motion", (Flow("online"),), hands_over=NETWORK),
        Row(
            "mean_teacher",
            "Mean teacher",
            "mean_teacher:MeanTeacher",
            _TEACHER,
            hands_over=MODEL,
            start=SHIPPED,
        ),
        Row(
            "mean_teacher_local",
            "Mean teacher, each site alone",
            "mean_teacher:MeanTeacher",
            (),
            hands_over=MODEL,
            start=SHIPPED,
        ),
        Row(
            "mean_teacher_dp",
            "Mean teacher-PTNU-DP",
            "mean_teacher:MeanTeacher",
            (Flow("online"), Flow("target", up=CALIBRATION, down=NEVER), Flow(DISTANCE)),
            hands_over=MODEL,
            start=SHIPPED,
        ),
        Row(
            "finetune_federated",
            "Federated fine-tuning",
            "supervised:Supervised",
            (Flow("online"),),
            hands_over=MODEL,
        ),
    )
}


def get_row(job: str) -> Row:
    """The row that runs as ``jobs/<job>``."""
    if job not in ROWS:
        raise FCLSegError(f"there is no job '{job}': choose one of {', '.join(ROWS)}")
    return ROWS[job]


def crosses(when: str, round_number: int, calibration_rounds: int) -> bool:
    """Whether a flow with this ``when`` is sent in this round (rounds count from 0)."""
    return when == ALWAYS or (when == CALIBRATION and round_number % calibration_rounds == 0)


FEATURES = frozenset(flow.component for row in ROWS.values() for flow in row.flows if flow.combine == OTHERS)
"""Components that describe single images instead of a network."""


def goes_up(row: Row, round_number: int, calibration_rounds: int) -> set[str]:
    """The components that leave a site in this round, except for the distance."""
    return {
        flow.component
        for flow in row.flows
        if flow.component != DISTANCE and crosses(flow.up, round_number, calibration_rounds)
    }
