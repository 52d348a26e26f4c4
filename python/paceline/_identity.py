"""A dictionary that finds values by the identity of objects. It neither compares the objects nor keeps them alive."""

import weakref


class ByIdentity:
    """Values of objects. A value is dropped with its object, so it must not hold a reference to it."""

    def __init__(self):
        self.values = {}

    def put(self, key, value):
        number = id(key)
        self.values[number] = weakref.ref(key, lambda _: self.values.pop(number, None)), value

    def get(self, key):
        """Returns the value of an object, or None if it has none."""
        found = self.values.get(id(key))
        return None if found is None or found[0]() is not key else found[1]
