"""Work on one patient after the other in the background; whoever is looked at comes first."""

import threading
from collections.abc import Callable, Sequence


class Background:
    """Calls ``work(patient)`` once for every patient, in one thread."""

    def __init__(self, work: Callable[[str], None], patients: Sequence[str]):
        self.work, self.waiting, self.total = work, list(patients), len(patients)
        self.done: set[str] = set()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="outlines", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def first(self, patient: str) -> None:
        """Do this patient next, again if it was done already."""
        with self._changed:
            self.waiting = [patient, *(other for other in self.waiting if other != patient)]
            self.done.discard(patient)
            self._changed.notify()

    def again(self, patients: Sequence[str]) -> None:
        """Begin anew with all patients."""
        with self._changed:
            self.waiting, self.total = list(patients), len(patients)
            self.done.clear()
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self.waiting)
                if self._ended:
                    return
                patient = self.waiting.pop(0)
            self.work(patient)
            with self._changed:
                self.done.add(patient)
