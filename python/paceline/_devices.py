"""The phases of a step where they are computed: on the host, or on a CUDA device."""

import sys

from paceline._agent import agent
from paceline._native import DevicePhase, Phase


def device_of(parameters):
    """Returns the device of the first parameter, or None if there is none."""
    return getattr(next(iter(parameters), None), "device", None)


def phase_on(device, code):
    """Returns a phase that a device computes, or None if its phases are not observed."""
    if device is None or device.type not in ("cpu", "cuda"):
        return None
    return Phase(agent(), code) if device.type == "cpu" else OnCuda(device, code)


class OnCuda:
    """A phase of a CUDA device. The host enqueues it, usually ahead of the device, on the stream that is current then.

    The device need not be the current one of the calling thread: scripts may name it in every call instead.
    """

    def __init__(self, device, code):
        self.device, self.phase = device, DevicePhase(agent(), code)
        self.cuda = sys.modules["torch"].cuda

    def begin(self):
        with self.cuda.device(self.device):
            self.phase.begin(self.stream())

    def restart(self):
        with self.cuda.device(self.device):
            self.phase.restart(self.stream())

    def end(self):
        with self.cuda.device(self.device):
            self.phase.end(self.stream())

    def stream(self):
        return self.cuda.current_stream(self.device).cuda_stream
