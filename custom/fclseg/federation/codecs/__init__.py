"""Networks in fewer bytes: codecs that the sender and the receiver of a message share. Only numpy and zstandard.

``codec.Codec`` turns a network into one array of bytes and back. It is put together from a layout (which tensors are
coded and which go as they are), a coder of the numbers (``exact``, ``float16``, ``uniform``, ``rotation``, ``steps``,
``topk``) and entropy coding. ``presets.CODECS`` names the combinations that a job can choose.
"""
