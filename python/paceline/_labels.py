"""States labels of this rank."""

import re

from paceline._agent import agent
from paceline._errors import say

# As in `wire/src/attributes.rs`.
KEY = re.compile(r"[A-Za-z0-9_./-]{1,64}")
MAX_VALUE_BYTES = 256


def state(key, value):
    """Reports a label. Returns whether it did: a text that is not a label is named and nothing is reported."""
    if not (isinstance(key, str) and KEY.fullmatch(key)):
        return refuse("key=%r does not have 1 to 64 letters, digits, and any of _ . - /" % (key,))
    text = str(value)
    is_plain = all(letter != "," and letter.isprintable() for letter in text)
    if not is_plain or len(text.encode("utf-8", "replace")) > MAX_VALUE_BYTES:
        return refuse("value=%r is longer than 256 bytes, or has commas or control characters" % (value,))
    agent().label(key, text)
    return True


def refuse(why):
    say("label: " + why + "; nothing is reported")
    return False
