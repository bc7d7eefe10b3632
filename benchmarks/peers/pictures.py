"""Two pictures of the results of benchmarks/table: bars against peers and floor, and a roofline.

usage: pictures.py TABLE.json FOLDER
"""
import json
import os
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PEERS = {"torch": ("PyTorch", "#c44e52"), "jax": ("JAX", "#8172b3"), "ort": ("ONNX Runtime", "#937860"), "openvino": ("OpenVINO", "#55a868")}
WEFT = "#4c72b0"


def bars(results, path):
    rows = [(k, r) for k, r in results["rows"].items() if "weft" in r and any(p in r for p in PEERS)]
    figure, axes = plt.subplots(figsize=(9, 0.34 * len(rows) + 1.4))
    for y, (key, row) in enumerate(rows):
        best = min(row[p]["best_ms"] for p in PEERS if p in row)
        axes.barh(y, row["weft"]["best_ms"] / best, color=WEFT, height=0.6)
        for p, (_, colour) in PEERS.items():
            if p in row:
                axes.plot(row[p]["best_ms"] / best, y, "o", color=colour, markersize=6)
        if row["weft"].get("floor_ms"):
            axes.plot([row["weft"]["floor_ms"] / best] * 2, [y - 0.38, y + 0.38], color="black", linewidth=2)
    axes.set_yticks(range(len(rows)), [k for k, _ in rows])
    axes.invert_yaxis()
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xlabel("time, of the best peer's (shorter is better)")
    handles = [plt.Rectangle((0, 0), 1, 1, color=WEFT), plt.Line2D([], [], color="black", linewidth=2)]
    handles += [plt.Line2D([], [], marker="o", linestyle="", color=c) for _, c in PEERS.values()]
    axes.legend(handles, ["Weft", "floor"] + [n for n, _ in PEERS.values()], loc="upper center", bbox_to_anchor=(0.4, -0.9 / len(rows) - 0.02),
                ncols=6, frameon=False, fontsize=8)
    figure.savefig(path, dpi=110, bbox_inches="tight")


def roofline(results, path):
    """Share of the multiply-add peak that each workload of products reaches, by its size."""
    figure, axes = plt.subplots(figsize=(8, 5))
    for key, row in results["rows"].items():
        w = row.get("weft")
        if not w or not w.get("gflop") or key.endswith("bf16"):
            continue
        share = w["gflop"] / w["best_ms"] * 1e3 / w["probe_gflops"]
        axes.plot(w["gflop"], share, "o", color=WEFT)
        axes.annotate(key, (w["gflop"], share), fontsize=7, xytext=(4, 3), textcoords="offset points")
        peers = [w["gflop"] / row[p]["best_ms"] * 1e3 / w["probe_gflops"] for p in PEERS if p in row]
        if peers:
            axes.plot([w["gflop"]] * 2, [share, max(peers)], color="#bbbbbb", linewidth=1, zorder=0)
            axes.plot(w["gflop"], max(peers), "_", color="#c44e52", markersize=9)
    axes.axhline(1, color="black", linewidth=2)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.1)
    axes.set_xlabel("work of one step, GFLOP")
    axes.set_ylabel("share of the f32 multiply-add peak")
    axes.legend([plt.Line2D([], [], marker="o", linestyle="", color=WEFT), plt.Line2D([], [], marker="_", linestyle="", color="#c44e52"),
                 plt.Line2D([], [], color="black", linewidth=2)], ["Weft", "the best peer", "what the probe reaches"], loc="lower right", frameon=False)
    figure.savefig(path, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        everything = json.load(file)
    os.makedirs(sys.argv[2], exist_ok=True)
    bars(everything, os.path.join(sys.argv[2], "bars.png"))
    roofline(everything, os.path.join(sys.argv[2], "roofline.png"))
