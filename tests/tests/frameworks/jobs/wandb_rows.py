"""Prints the rows of an offline run of Weights & Biases as JSON, one per line. Usage: wandb_rows.py FOLDER

The library writes the file and has no reader for it: a log of LevelDB's format with the library's own messages.
"""

import json
import struct
import sys
from pathlib import Path

from wandb.proto import wandb_internal_pb2

HEADER, BLOCK, ENTRY = 7, 32768, struct.Struct("<IHB")
FULL, LAST = 1, 4


def entries(data):
    at, parts = HEADER, b""
    while at + ENTRY.size <= len(data):
        # An entry never begins in the last bytes of a block.
        if BLOCK - at % BLOCK < ENTRY.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = ENTRY.unpack_from(data, at)
        parts += data[at + ENTRY.size : at + ENTRY.size + length]
        at += ENTRY.size + length
        if kind in (FULL, LAST):
            yield parts
            parts = b""


[file] = Path(sys.argv[1]).glob("wandb/offline-run-*/*.wandb")
for entry in entries(file.read_bytes()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(entry)
    if record.WhichOneof("record_type") == "history":
        items = record.history.item
        print(json.dumps({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}))
