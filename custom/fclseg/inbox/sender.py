"""Sends results to the archive, one object at a time, remembers what it accepted, and asks whether it has them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fclseg.dicom.frames import pydicom
from fclseg.errors import PassingError
from fclseg.inbox.receiver import pynetdicom
from fclseg.inbox.settings import Settings

SUCCESS, WARNINGS = 0x0000, (0xB000, 0xB006, 0xB007)
PENDING = (0xFF00, 0xFF01)
FIND = "1.2.840.10008.5.1.4.1.2.2.1"
"""Queries of the study root model."""
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
    association = _associate(settings, ((one.SOPClassUID, one.file_meta.TransferSyntaxUID) for one in waiting))
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


def unlisted(settings: Settings, files: Sequence[Path]) -> list[str] | None:
    """The UIDs of the files that the archive does not list; None if it does not answer queries."""
    tags = ["SOPClassUID", "StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID"]
    headers = [pydicom().dcmread(path, specific_tags=tags) for path in files]
    listed: set[str] = set()
    # Storage is asked for, too: an association with nothing to agree on would be taken for an archive that is down.
    association = _associate(settings, [(FIND,), (headers[0].SOPClassUID,)])
    try:
        if not any(one.abstract_syntax == FIND for one in association.accepted_contexts):
            return None
        for study, series in dict.fromkeys((one.StudyInstanceUID, one.SeriesInstanceUID) for one in headers):
            query = pydicom().Dataset()
            query.QueryRetrieveLevel, query.SOPInstanceUID = "IMAGE", ""
            query.StudyInstanceUID, query.SeriesInstanceUID = study, series
            for status, found in association.send_c_find(query, FIND):
                code = getattr(status, "Status", None)
                if code is None:
                    raise PassingError("the archive gave no answer when it was asked what it has")
                if code not in (SUCCESS, *PENDING):
                    return None
                listed |= {str(found.SOPInstanceUID)} if code in PENDING else set()
    finally:
        if association.is_established:
            association.release()
    return [str(one.SOPInstanceUID) for one in headers if str(one.SOPInstanceUID) not in listed]


def _associate(settings: Settings, contexts: Iterable[tuple[str, ...]]) -> Any:
    """``contexts``: kinds of objects, each with its transfer syntax if it must have a certain one."""
    node = settings.send_to
    assert node is not None
    entity = pynetdicom().AE(settings.title)
    entity.acse_timeout = entity.dimse_timeout = entity.network_timeout = TIMEOUT_SECONDS
    entity.connection_timeout = TIMEOUT_SECONDS
    for kind in dict.fromkeys(contexts):
        entity.add_requested_context(*kind)
    tls = (settings.tls.context(server=False), node.host) if settings.tls else None
    association = entity.associate(node.host, node.port, ae_title=node.title, tls_args=tls)
    if not association.is_established:
        raise PassingError(
            f"{node.title} at {node.host}:{node.port} cannot be reached or does not accept {settings.title}"
        )
    return association
