"""Sends results to the archive, one object at a time, and remembers what it accepted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fclseg.dicom.frames import pydicom
from fclseg.errors import PassingError
from fclseg.inbox.receiver import pynetdicom
from fclseg.inbox.settings import Settings

SUCCESS, WARNINGS = 0x0000, (0xB000, 0xB006, 0xB007)
TIMEOUT_SECONDS = 30.0


def send(settings: Settings, files: Sequence[Path], sent: Sequence[str], accepted: Callable[[str], None]) -> None:
    """Send the files whose UIDs are not yet ``sent``; ``accepted`` is called after each. Raises if one is left.

    The UIDs of results follow from their content: a result that is sent again because the inbox was killed before it
    could remember is the same object to the archive.
    """
    datasets = [pydicom().dcmread(path) for path in files]
    waiting = [one for one in datasets if str(one.SOPInstanceUID) not in sent]
    if not waiting:
        return
    association = _associate(settings, waiting)
    try:
        for dataset in waiting:
            status = association.send_c_store(dataset)
            code = getattr(status, "Status", None)
            if code != SUCCESS and code not in WARNINGS:
                words = "gave no answer" if code is None else f"answered {code:#06x}"
                raise PassingError(f"the archive {words} to a {dataset.Modality} object")
            accepted(str(dataset.SOPInstanceUID))
    finally:
        if association.is_established:
            association.release()


def _associate(settings: Settings, datasets: Sequence[Any]) -> Any:
    node = settings.send_to
    assert node is not None
    entity = pynetdicom().AE(settings.title)
    entity.acse_timeout = entity.dimse_timeout = entity.network_timeout = TIMEOUT_SECONDS
    entity.connection_timeout = TIMEOUT_SECONDS
    for kind in dict.fromkeys((one.SOPClassUID, one.file_meta.TransferSyntaxUID) for one in datasets):
        entity.add_requested_context(*kind)
    tls = (settings.tls.context(server=False), node.host) if settings.tls else None
    association = entity.associate(node.host, node.port, ae_title=node.title, tls_args=tls)
    if not association.is_established:
        raise PassingError(
            f"{node.title} at {node.host}:{node.port} cannot be reached or does not accept {settings.title}"
        )
    return association
