"""A GPT over bytes, from the King James text or any other: trained, stopped and gone on with the same bits, and sampled with
a cache of keys and values in one launch.

pip install libweft
apt-get install bible-kjv
python3 gpt.py --steps 2000 --checkpoint gpt.weft --every 200      # --text FILE for another text
python3 gpt.py --steps 4000 --checkpoint gpt.weft --resume --sample 400 --prompt "And it came to pass"
"""

import argparse
import math
import shutil
import subprocess

import libweft as wf
from libweft import nn, optim


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and beside a way around it."""

    def __init__(self, width, heads, depth, rate):
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop, self.heads = nn.Dropout(rate), heads
        for layer in (self.outer, self.down):  # What is added 2 * depth times starts small (Radford et al. 2019).
            layer.w = wf.Parameter(layer.w.detach() / math.sqrt(2 * depth))

    def forward(self, x):
        return self.perceptron(self.attend(x, *self.keys_and_values(x), causal=True))

    def split(self, x):
        """[batch, time, width] as [batch, heads, time, width / heads]"""
        batch, time, width = x.shape
        return x.reshape(batch, time, self.heads, width // self.heads).transpose(0, 2, 1, 3)

    def keys_and_values(self, x):
        q, k, v = wf.chunk(self.inner(self.norm1(x)), 3, -1)
        return self.split(q), self.split(k), self.split(v)

    def attend(self, x, q, k, v, **mask):
        y = wf.scaled_dot_product_attention(q, k, v, **mask).transpose(0, 2, 1, 3).reshape(x.shape)
        return x + self.drop(self.outer(y))

    def perceptron(self, x):
        return x + self.drop(self.down(self.up(self.norm2(x)).gelu()))

    def one(self, x, cache, i):
        """The same for one position: its key and value go into the cache, and it sees what is there up to i."""
        q, k, v = self.keys_and_values(x)
        k = wf.dynamic_update_slice(cache[0], k, [0, 0, i, 0])
        v = wf.dynamic_update_slice(cache[1], v, [0, 0, i, 0])
        seen = wf.arange(k.shape[2]) <= i
        return self.perceptron(self.attend(x, q, k, v, mask=seen)), (k, v)


class GPT(nn.Module):
    def __init__(self, context=128, width=128, depth=4, heads=4, rate=0.1):
        self.context = context
        self.bytes, self.places = nn.Embedding(256, width, 0.02), nn.Embedding(context, width, 0.02)
        self.blocks = [Block(width, heads, depth, rate) for _ in range(depth)]
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(rate)

    def forward(self, ids):
        """[batch, time] to logits [batch, time, 256]; the table of the bytes is the last layer, too."""
        x = self.drop(self.bytes(ids) + self.places(wf.arange(ids.shape[1], dtype="i32")))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.bytes.table.T

    def one(self, byte, caches, i):
        """Logits [256] behind one byte at place i."""
        x = self.bytes(byte.reshape(1, 1)) + self.places(i.reshape(1, 1))
        made = []
        for block, cache in zip(self.blocks, caches):
            x, cache = block.one(x, cache, i)
            made.append(cache)
        return (self.norm(x) @ self.bytes.table.T).reshape(256), made

    def caches(self):
        heads, width = self.blocks[0].heads, self.bytes.table.shape[1]
        empty = wf.zeros((1, heads, self.context, width // heads))
        return [(empty, empty) for _ in self.blocks]


def generate(model, prompt, count, temperature):
    """(bytes, logits): the prompt and what follows it, by one loop of one program; temperature 0 takes the likeliest."""
    total = len(prompt) + count
    if not 0 < len(prompt) < total <= model.context:
        raise SystemExit("a prompt and what follows it have between 2 and %d bytes" % model.context)
    given = wf.tensor(list(prompt) + [0] * count, "i32")

    def place(carry, i):
        byte, caches = carry
        logits, caches = model.one(byte, caches, i)
        if temperature:
            drawn = wf.categorical(logits / temperature)
        else:
            drawn = logits.argmax()
        following = wf.take(given, wf.minimum(i + 1, total - 1))
        byte = wf.where(i + 1 < len(prompt), following, drawn)
        return (byte, caches), (byte, logits)

    _, (made, logits) = wf.scan(place, (given[0], model.caches()), wf.arange(total - 1, dtype="i32"))
    return wf.concat([given[:1], made], 0), logits


def read_text(path):
    if path:
        with open(path, "rb") as f:
            return f.read()
    if shutil.which("bible"):
        return subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, stdout=subprocess.PIPE).stdout
    raise SystemExit("there is no text: install Debian's package bible-kjv, or name one with --text")


def batch(text, size, context):
    """(x, y): pieces of the text and the bytes that follow each, drawn when the program runs."""
    starts = wf.random.randint(0, text.shape[0] - context, (size,))
    pieces = wf.take(text, starts.reshape(size, 1) + wf.arange(context + 1, dtype="i32")).astype("i32")
    return pieces[:, :-1], pieces[:, 1:]


def make_optimizer(model, o):
    """AdamW that shrinks matrices and leaves biases, norms and places of tables alone."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "table" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "table" in name]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return optim.AdamW(groups, lr=optim.cosine(o.lr, steps=o.horizon, warmup=o.warmup, end=o.lr / 10), beta2=0.99)


def save(o, model, optimizer, step):
    key, low, high = (v - 2**64 if v >= 2**63 else v for v in wf.random.get_state())
    state = {"model": model, "optimizer": optimizer, "random": {"key": key, "low": low, "high": high}}
    wf.save(o.checkpoint, state, step=step)


def load(o, model, optimizer):
    """Goes on where a file ends; gives how many steps it had."""
    state = wf.load(o.checkpoint)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    wf.random.set_state([state["random"][k] % 2**64 for k in ("key", "low", "high")])
    wf.sync()
    return optimizer.count


def train(o, model, text):
    optimizer = make_optimizer(model, o)
    first = load(o, model, optimizer) if o.resume else 0
    losses, loss = [], None
    bar = wf.bar(range(first, o.steps), "gpt")
    for i in bar:
        with wf.step():
            x, y = batch(text, o.batch, o.context)
            loss = nn.cross_entropy(model(x).reshape(-1, 256), y.reshape(-1))
            grads, norm = optim.clip_by_global_norm(wf.gradients(loss, optimizer.params), 1.0)
            optimizer.step(grads)
            loss.keep()
        if (i + 1) % 10 == 0 or i + 1 == o.steps:
            losses.append(loss.item())
            bar.set(loss=losses[-1])
        if o.every and (i + 1) % o.every == 0:
            save(o, model, optimizer, i + 1)
    if losses:
        print("step %d  loss %.4f (%s)" % (o.steps, losses[-1], losses[-1].hex()))
    if o.svg and losses:
        wf.plot.lines({"train": losses}, title="GPT over bytes", x="tens of steps").save(o.svg)


def sample(o, model):
    model.eval()
    prompt = o.prompt.encode()
    wf.sync()
    before = wf.metrics.get("programs_queued")
    made, logits = generate(model, prompt, o.sample, o.temperature)
    wf.evaluate(made, logits)
    launches = wf.metrics.get("programs_queued") - before
    print(bytes(made.tolist()).decode("utf-8", "replace"))
    full = model(made.reshape(1, -1))[0, :-1]
    print("%d launch, beside the full forward: %.1e" % (launches, wf.abs(full - logits).max().item()))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", help="a file; else the King James text of Debian's package bible-kjv")
    parser.add_argument("--steps", type=int, default=2000, help="all steps, those of the file to go on from among them")
    parser.add_argument("--horizon", type=int, help="steps of the schedule, if others than --steps")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", default="gpt.weft")
    parser.add_argument("--every", type=int, default=0, help="write the checkpoint every so many steps")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--sample", type=int, default=0, help="bytes to write behind the prompt")
    parser.add_argument("--prompt", default="In the beginning ")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: the likeliest byte")
    parser.add_argument("--svg", help="a picture of the losses")
    o = parser.parse_args()
    o.horizon = o.horizon or o.steps
    return o


def main():
    o = arguments()
    wf.seed(o.seed)
    model = GPT(o.context, o.width, o.depth, rate=o.dropout)
    text = wf.tensor(read_text(o.text))
    wf.sync()
    train(o, model, text)
    if o.sample:
        sample(o, model)


if __name__ == "__main__":
    main()
