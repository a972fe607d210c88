"""The DICOM node: answers C-ECHO, stores what C-STORE brings, and turns away whoever is not on the list."""

import io
import threading
from typing import Any

from fclseg.dicom.frames import MR_IMAGES, pydicom
from fclseg.errors import DataError, FCLSegError
from fclseg.inbox.log import Log
from fclseg.inbox.queue import Queue
from fclseg.inbox.settings import Settings

SUCCESS, OUT_OF_RESOURCES, CANNOT_UNDERSTAND = 0x0000, 0xA700, 0xC000
REJECTED = (0x01, 0x01, 0x03)
"""Permanently, by the service user, because the calling title is not recognised."""
CALLING_IDENTIFIERS = ("StudyInstanceUID", "SOPInstanceUID", "SOPClassUID")


def pynetdicom() -> Any:
    try:
        import pynetdicom as library
    except ImportError:
        raise FCLSegError("the inbox needs pynetdicom: install it with pip install 'fclseg[inbox]'") from None
    return library


class Receiver:
    """``start`` listens in threads of its own, ``stop`` ends them."""

    def __init__(self, settings: Settings, queue: Queue, log: Log):
        self.settings, self.queue, self.log = settings, queue, log
        self.ignored: dict[str, int] = {}
        self._server: Any = None
        self._lock = threading.Lock()

    def start(self) -> None:
        library = pynetdicom()
        entity = library.AE(self.settings.title)
        entity.require_called_aet = True
        entity.supported_contexts = []
        for context in library.AllStoragePresentationContexts:
            entity.add_supported_context(context.abstract_syntax, library.ALL_TRANSFER_SYNTAXES)
        entity.add_supported_context("1.2.840.10008.1.1")  # verification
        tls = self.settings.tls
        handlers = [
            (library.evt.EVT_REQUESTED, self._check_caller),
            (library.evt.EVT_C_ECHO, lambda event: SUCCESS),
            (library.evt.EVT_C_STORE, self._store),
        ]
        address = (self.settings.host, self.settings.port)
        try:
            self._server = entity.start_server(
                address, block=False, evt_handlers=handlers, ssl_context=tls.context(server=True) if tls else None
            )
        except OSError as error:
            raise FCLSegError(
                f"port {address[1]} of {address[0]} cannot be used ({error.strerror}); choose another"
            ) from None

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()

    def _check_caller(self, event: Any) -> None:
        requestor = event.assoc.requestor
        title, address = str(requestor.primitive.calling_ae_title).strip(), str(requestor.address)
        if any(caller.admits(title, address) for caller in self.settings.callers):
            return
        self.log(f"turned away {title} at {address}: not on the list")
        event.assoc.acse.send_reject(*REJECTED)
        event.assoc.kill()

    def _store(self, event: Any) -> int:
        """Keep MR images. Other objects of the study are accepted and forgotten, so that the sender is content."""
        try:
            content = event.encoded_dataset()
            header = pydicom().dcmread(
                io.BytesIO(content), stop_before_pixels=True, specific_tags=list(CALLING_IDENTIFIERS)
            )
            study, image, kind = (str(getattr(header, name)) for name in CALLING_IDENTIFIERS)
            if not study or not image:
                raise ValueError("no identifiers")
        except Exception:  # whatever a broken object makes the library raise
            self.log("a broken object was refused")
            return CANNOT_UNDERSTAND
        if kind not in MR_IMAGES:
            with self._lock:
                self.ignored[kind] = self.ignored.get(kind, 0) + 1
            return SUCCESS
        try:
            self.queue.add(study, image, content)
        except (DataError, OSError):
            self.log("an image could not be stored: free space; the sender was told to send it again")
            return OUT_OF_RESOURCES
        return SUCCESS
