"""Networks in fewer bytes: codecs shared by the sender and the receiver of a message. Needs only numpy and zstandard.

``codec.Codec`` turns a network into one array of bytes and back. It consists of a layout (which tensors are encoded and
which are sent as they are), a coder for the numbers (``exact``, ``uniform``, ``steps``) and entropy coding.
``presets.CODECS`` lists the combinations that a job can choose.
"""
