"""Entropy coding with zstandard, with outputs that cannot grow beyond what the receiver expects."""

import zstandard

from fclseg.errors import FCLSegError

LEVEL = 1
"""Coded numbers have no repetitions to look for, only frequent and rare bytes: higher levels cost time for little."""
LARGEST_WINDOW = 1 << 23
"""What zstandard may allocate for a frame, whatever the frame claims."""


def shrink(data: bytes, level: int = LEVEL) -> bytes:
    return zstandard.ZstdCompressor(level=level, write_content_size=False).compress(data)


def expand(data: bytes | memoryview, limit: int) -> bytes:
    """What ``shrink`` was given, of which there must be at most ``limit`` bytes. Never holds more than that."""
    reader = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).stream_reader(data, read_across_frames=False)
    try:
        found = reader.read(limit + 1)
    except (zstandard.ZstdError, MemoryError) as error:
        raise FCLSegError(f"an encoded message cannot be decompressed ({error}): it is damaged and not used") from None
    if len(found) > limit:
        raise FCLSegError(f"an encoded message decompresses to more than {limit} bytes: it is not used")
    return found
