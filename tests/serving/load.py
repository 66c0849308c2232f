"""Many clients at once, as cheap as they come: raw sockets, so that what is measured is the server."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any


@dataclass
class Load:
    """What a number of clients saw."""

    gaps: list[float] = field(default_factory=list)  # seconds between two tokens of a text
    texts: int = 0
    tokens: int = 0
    errors: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.gaps)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def head(path: str, body: bytes, host: str = "localhost") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


async def one_text(port: int, body: dict[str, Any], load: Load, pause: float = 0.0) -> None:
    """One stream, read as it comes, or a kilobyte at a time with a pause after each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    try:
        writer.write(head("/v1/completions", json.dumps({**body, "stream": True}).encode()))
        status = await reader.readline()
        if b" 200 " not in status:
            load.errors.append(status.decode().strip() or "closed before an answer")
            return
        last, ended, rest = 0.0, False, b""
        while data := await reader.read(1024 if pause else 1 << 16):
            now, rest = time.perf_counter(), rest + data
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if b'"error":' in line:
                    load.errors.append(line.decode())
                elif b"[DONE]" in line:
                    ended = True
                elif b'"finish_reason": null' in line:
                    load.tokens += 1
                    if last and not pause:
                        load.gaps.append(now - last)
                    last = now
            if pause:
                await asyncio.sleep(pause)
        if not ended:
            load.errors.append("a stream ended before its end")
        load.texts += 1
    except OSError as error:
        load.errors.append(f"{type(error).__name__}: {error}")
    finally:
        writer.close()


async def keep_asking(
    port: int, body: dict[str, Any], load: Load, until: float, number: int, pause: float = 0.0
) -> None:
    """One text after the other until a time is over; the last one is read to its end.

    They are of different lengths, as texts are: else all clients would end and begin together.
    """
    while time.monotonic() < until and len(load.errors) < 100:
        number += 1000
        tokens = Random(number).randint(body["max_tokens"] // 2, 3 * body["max_tokens"] // 2)
        await one_text(port, {**body, "seed": number, "max_tokens": tokens}, load, pause)


async def under_load(
    port: int, body: dict[str, Any], streams: int, slow: int, seconds: float
) -> tuple[Load, Load]:
    """So many clients that read at once and so many that are slow, for a time."""
    quick, slowly, until = Load(), Load(), time.monotonic() + seconds
    clients = [keep_asking(port, body, quick, until, i) for i in range(streams)]
    clients += [keep_asking(port, body, slowly, until, 500 + i, 0.1) for i in range(slow)]
    await asyncio.gather(*clients)
    return quick, slowly


def resident(pid: int) -> int:
    """Kilobytes of memory that a process has now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")
