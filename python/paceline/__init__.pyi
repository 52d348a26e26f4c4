from typing import Any, Literal, Optional, Union

__all__ = ["log", "transformer_flops", "watch", "workload"]

def watch(server: Optional[str] = None, name: Optional[str] = None, run: Optional[str] = None) -> bool: ...
def workload(
    samples_per_step: Optional[float] = None,
    unit: Optional[str] = None,
    flops_per_sample: Optional[float] = None,
    hardware_flops_per_sample: Optional[float] = None,
    precision: Optional[Literal["fp32", "tf32", "fp16", "bf16", "fp8"]] = None,
    peak_flops: Union[float, Literal["measure"], None] = None,
) -> bool: ...
def transformer_flops(
    parameters: int, layers: int, attention_width: int, sequence: int, causal: bool = False
) -> int: ...
def log(to: Any = None, every: float = 30.0) -> bool: ...
def is_off() -> bool: ...
