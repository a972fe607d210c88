"""The last lines of a simulator that somebody started by hand: where the encoder is, and what to type next."""

from nvflare.fuel.f3.mpm import MainProcessMonitor

from fclseg.engine.next_step import next_steps
from fclseg.engine.run_folder import RunFolder


def say_at_the_end(run: RunFolder) -> None:
    """Print the lines when the simulator's server ends, after NVFlare's own messages."""

    def say() -> None:
        print("", *next_steps(run), sep="\n", flush=True)

    def later() -> None:
        MainProcessMonitor.add_cleanup_cb(say)  # NVFlare cleans up in rounds; ours is after all others

    if run.complete:
        MainProcessMonitor.add_cleanup_cb(later)
