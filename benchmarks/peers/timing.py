"""Timing shared by the peers: distinct batches, the loss read every 50 steps, best and median of whole chunks."""
import statistics
import sys
import time


def measure(name, peer, run_chunk, steps, seconds):
    """run_chunk() runs `steps` training steps and reads the loss once at the end."""
    for _ in range(2):
        run_chunk()
    times, end = [], time.time() + seconds
    while time.time() < end or len(times) < 5:
        start = time.perf_counter()
        run_chunk()
        times.append((time.perf_counter() - start) / steps * 1e3)
    print(name, peer, f"{min(times):.4f} {statistics.median(times):.4f}", flush=True)


def seconds():
    return float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
