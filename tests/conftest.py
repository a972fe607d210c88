"""What all tests share."""

import signal

# A shell that starts a command in the background makes it ignore SIGINT, and so would every process that a test starts
# and then interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
