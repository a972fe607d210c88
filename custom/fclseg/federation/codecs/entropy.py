"""Entropy coding with zstandard. The decoded size cannot exceed what the receiver expects."""

import zstandard

from fclseg.errors import FCLSegError

LEVEL = 1
"""Encoded numbers have no repetitions, only frequent and rare bytes, so higher levels cost time for little gain."""
LARGEST_WINDOW = 1 << 23
"""What zstandard may allocate for a frame, regardless of what the frame claims."""


def shrink(data: bytes, level: int = LEVEL) -> bytes:
    return zstandard.ZstdCompressor(level=level, write_content_size=False).compress(data)


def expand(data: bytes | memoryview, limit: int) -> bytes:
    """Undo ``shrink``. The output must have at most ``limit`` bytes; more is never allocated."""
    reader = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).stream_reader(data, read_across_frames=False)
    try:
        found = reader.read(limit + 1)
    except (zstandard.ZstdError, MemoryError) as error:
        raise FCLSegError(f"an encoded message cannot be decompressed ({error}): it is damaged and not used") from None
    if len(found) > limit:
        raise FCLSegError(f"an encoded message decompresses to more than {limit} bytes: it is not used")
    return found
