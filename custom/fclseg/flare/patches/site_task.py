"""A task that may be sent to its site again, after a lost reply or a new process at the site.

NVFlare 2.9.0 sends a task again if its site asks while the answer is missing. If tasks of other sites come after it in
its list, it notes the same sending twice, because ``WFCommServer._do_process_task_request`` forgets in the next turn of
its loop that it is sending again. Removing the second note fails and ends the thread that completes tasks, so that the
run hangs.
"""

from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task


class Sendings(list[ClientTask]):
    """What NVFlare noted of the sendings of a task: each only once."""

    def append(self, sending: ClientTask) -> None:
        if sending not in self:
            super().append(sending)


class SiteTask(Task):
    """NVFlare's task, for one site."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.client_tasks = Sendings()
