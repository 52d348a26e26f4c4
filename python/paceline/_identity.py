"""A dictionary of objects that keeps none of them alive and compares none."""

import weakref


class ByIdentity:
    """Values of objects. A value goes with its object, so it must not refer to it."""

    def __init__(self):
        self.values = {}

    def put(self, key, value):
        number = id(key)
        self.values[number] = weakref.ref(key, lambda _: self.values.pop(number, None)), value

    def get(self, key):
        """Returns the value of an object, or None if it has none."""
        found = self.values.get(id(key))
        return None if found is None or found[0]() is not key else found[1]
