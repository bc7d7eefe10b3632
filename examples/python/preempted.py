"""Training that is told to end, saves, and goes on when it is started again.

    weft launch -n 2 -- python preempted.py --steps 100000

A platform that takes its machines back says so by SIGTERM, to the launcher or to one process. All processes hear of it at the same
step, save together and leave with 0; started again, they go on from there, also where there are more or fewer of them.
"""

import argparse
import os
import signal

import libweft as wf


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", default="preempted.weft")
    options = parser.parse_args()

    job = wf.job.Job()
    signal.signal(signal.SIGTERM, lambda *_: job.preempt())
    wf.seed(1)
    model = wf.nn.Sequential(wf.nn.Linear(2, 16), wf.tanh, wf.nn.Linear(16, 1))
    optimizer = wf.optim.AdamW(model, lr=0.01, job=job, shard_state=job.size > 1)
    x = wf.random.normal((64, 2))
    y = (x * wf.tensor([1.0, -2.0])).sum(axis=1, keepdims=True)
    mine = slice(job.rank * 64 // job.size, (job.rank + 1) * 64 // job.size)
    first = 0
    if os.path.exists(options.checkpoint):
        state = wf.load(options.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        job.barrier()
    if job.rank == 0:
        print("from step", first, flush=True)
    for step in range(first, options.steps):
        with wf.step():
            loss = ((model(x[mine]) - y[mine]) ** 2).mean()
            optimizer.step(loss, max_norm=1.0)
        if job.preempted():  # Waits for the step, and for the others.
            job.save(options.checkpoint, {"model": model, "optimizer": optimizer, "step": step + 1})
            if job.rank == 0:
                print("saved at step", step + 1, flush=True)
            break
    else:
        if job.rank == 0:
            print("done", flush=True)
    job.leave()


if __name__ == "__main__":
    main()
