"""Servers that misbehave, in a process of their own. Prints their ports as JSON and runs until its input ends."""

import asyncio
import json
import sys


async def silent(reader, writer):
    await reader.read(-1)


async def closing(reader, writer):
    writer.close()


def answers(text):
    async def answer(reader, writer):
        try:
            while await reader.read(1 << 16):
                writer.write(text)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    return answer


async def endless(reader, writer):
    try:
        await reader.read(1 << 16)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        while True:
            writer.write(b"[" * (1 << 14))
            await writer.drain()
            await asyncio.sleep(0.001)
    except OSError:
        pass


KINDS = {
    "silent": silent,
    "closing": closing,
    "garbage": answers(b"\x00\xff not HTTP \r\n\r\n" * 64),
    "errors": answers(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\nno"),
    "redirect": answers(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"),
    "endless": endless,
}


async def main():
    listening = {kind: await asyncio.start_server(answer, "127.0.0.1", 0) for kind, answer in KINDS.items()}
    print(json.dumps({kind: server.sockets[0].getsockname()[1] for kind, server in listening.items()}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
