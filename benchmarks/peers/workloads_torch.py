"""The workloads of benchmarks/workloads on PyTorch, channels last but where the name says nchw, on two threads.

usage: workloads_torch.py --only NAME [--seconds S] [--bf16] [--compile]
Prints one JSON object: best and median milliseconds, seconds of the first step, peak megabytes. --bf16: autocast.
"""
import argparse
import json
import resource
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--only", required=True)
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--compile", action="store_true")
options = parser.parse_known_args()[0]  # others are workloads_onnx.py's
torch.set_num_threads(2)
LAST = torch.contiguous_format if options.only.endswith("-nchw") else torch.channels_last


def images(*shape):
    return torch.rand(*shape).sub(0.5).to(memory_format=LAST)


def twenty(a, b, c):
    x = torch.tanh(a * b + c) + a
    x = x * torch.exp(-(b * b)) / (1 + c * c)
    x = torch.maximum(x, a - b)
    x = x * x + x * 0.5 - c
    x = x / (1 + torch.abs(x))
    return x * b + a * c - 0.1


def conv(fan_in, out, k, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(fan_in, out, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Bottleneck(nn.Module):
    def __init__(self, fan_in, width, stride, first):
        super().__init__()
        self.main = nn.Sequential(conv(fan_in, width, 1), conv(width, width, 3, stride), conv(width, 4 * width, 1, act=None))
        self.side = conv(fan_in, 4 * width, 1, stride, act=None) if first else nn.Identity()

    def forward(self, x):
        return F.relu(self.main(x) + self.side(x))


def resnet50():
    layers, fan_in = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for b in range(blocks):
            layers.append(Bottleneck(fan_in, width, stride if b == 0 else 1, b == 0))
            fan_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)).to(memory_format=LAST)


class Inverted(nn.Module):
    def __init__(self, fan_in, out, expansion, stride):
        super().__init__()
        wide = fan_in * expansion
        layers = [] if expansion == 1 else [conv(fan_in, wide, 1, act=nn.ReLU6)]
        layers += [conv(wide, wide, 3, stride, wide, nn.ReLU6), conv(wide, out, 1, act=None)]
        self.main, self.adds = nn.Sequential(*layers), stride == 1 and fan_in == out

    def forward(self, x):
        return x + self.main(x) if self.adds else self.main(x)


def mobilenet():
    layers, fan_in = [conv(3, 32, 3, 2, act=nn.ReLU6)], 32
    for t, c, n, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for b in range(n):
            layers.append(Inverted(fan_in, c, t, s if b == 0 else 1))
            fan_in = c
    layers += [conv(320, 1280, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers).to(memory_format=LAST)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        twice = lambda a, b: nn.Sequential(conv(a, b, 3), conv(b, b, 3))
        widths = (32, 64, 128, 256)
        self.first = twice(3, 32)
        self.down = nn.ModuleList(twice(w, 2 * w) for w in widths[:3])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2, bias=False) for w in widths[2::-1])
        self.join = nn.ModuleList(twice(2 * w, w) for w in widths[2::-1])
        self.last = nn.Conv2d(32, 1, 1, bias=False)

    def forward(self, x):
        x, kept = self.first(x), []
        for layer in self.down:
            kept.append(x)
            x = layer(F.max_pool2d(x, 2))
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


class Block(nn.Module):
    def __init__(self, width, heads, causal, norms_before, tanh):
        super().__init__()
        self.heads, self.causal, self.before, self.form = heads, causal, norms_before, "tanh" if tanh else "none"
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def parts(self, x):
        b, t, w = x.shape
        return [p.view(b, t, self.heads, w // self.heads).transpose(1, 2) for p in self.qkv(x).split(w, 2)]

    def merge(self, h):
        return self.out(h.transpose(1, 2).flatten(2))

    def attention(self, x):
        return self.merge(F.scaled_dot_product_attention(*self.parts(x), is_causal=self.causal))

    def feed(self, x):
        return self.narrow(F.gelu(self.wide(x), approximate=self.form))

    def forward(self, x):
        if self.before:
            x = x + self.attention(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed(x))

    def decode(self, x, keys, values, at):
        q, k, v = self.parts(self.norm1(x))
        keys[:, :, at], values[:, :, at] = k[:, :, 0], v[:, :, 0]
        x = x + self.merge(F.scaled_dot_product_attention(q, keys, values))
        return x + self.feed(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.blocks = nn.ModuleList(Block(768, 12, True, True, True) for _ in range(12))
        self.norm = nn.LayerNorm(768)

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.words.weight.t()

    def decode(self, ids, caches, at):
        x = self.words(ids) + self.places.weight[at]
        for block, (keys, values) in zip(self.blocks, caches):
            x = block.decode(x, keys, values, at)
        return self.norm(x) @ self.words.weight.t()


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 192, 16, 16)
        self.first, self.places = nn.Parameter(torch.zeros(1, 1, 192)), nn.Parameter(torch.zeros(1, 197, 192))
        self.blocks = nn.Sequential(*[Block(192, 3, False, True, False) for _ in range(12)])
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 1000)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Translation(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(8000, 256), nn.Embedding(8000, 256)
        self.encoder, self.decoder, self.head = nn.GRU(256, 512), nn.GRU(256, 512), nn.Linear(512, 8000)

    def forward(self, source, target):
        state = self.encoder(self.source(source))[1]
        return self.head(self.decoder(self.target(target), state)[0])


def infer(model, *inputs):
    model.eval()
    call = torch.compile(model) if options.compile else model

    def step():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            return call(*inputs)

    return step


def plain(fn, *inputs):
    if options.bf16:
        inputs = [x.bfloat16() for x in inputs]
    call = torch.compile(fn) if options.compile else fn

    def step():
        with torch.inference_mode():
            return call(*inputs)

    return step


def train(model, optimizer, loss):
    forward = torch.compile(loss) if options.compile else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            value = forward()
        value.backward()
        optimizer.step()
        return value.item()

    return step


def momentum(model, loss):
    return train(model, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9), loss)


def adamw(model, loss):
    return train(model, torch.optim.AdamW(model.parameters(), 1e-3, fused=True), loss)


def classes(n, below):
    return torch.randint(0, below, (n,))


def squares(y):
    return y.float().pow(2).mean()


def product(m, k, n):
    return lambda: plain(torch.matmul, torch.rand(m, k), torch.rand(k, n))


def rows(n):
    return lambda: plain(lambda x: F.softmax(x, -1), torch.rand(n, 1024))


def elements(n):
    return lambda: plain(twenty, *[torch.rand(n) - 0.5 for _ in range(3)])


def kind():
    return torch.bfloat16 if options.bf16 else torch.float32


def gradients(make_loss, *of):
    return lambda: torch.autograd.grad(make_loss(), of)


def one_layer(layer, x, x_has_gradient):
    layer, x = layer.to(kind()).to(memory_format=LAST), x.to(kind()).requires_grad_(x_has_gradient)
    return gradients(lambda: squares(layer(x)), *layer.parameters(), *([x] if x_has_gradient else []))


def one_pool():
    x, summand = images(8, 64, 112, 112).to(kind()), torch.full((1,), 0.1, dtype=kind(), requires_grad=True)
    return gradients(lambda: squares(F.max_pool2d(x + summand, 3, 2, 1)), summand)


def layer_norm():
    x, g, b = [t.to(kind()).requires_grad_() for t in (torch.rand(1024, 1024), torch.ones(1024), torch.zeros(1024))]
    d = torch.rand(1024, 1024, dtype=kind())
    return lambda: torch.autograd.grad(F.layer_norm(x, (1024,), g, b), (x, g, b), d)


def block(batch, training):
    def make():
        model, x = Block(768, 12, True, True, True), torch.rand(batch, 128, 768)
        return adamw(model, lambda: squares(model(x))) if training else infer(model, x)

    return make


def gpt_training(batch):
    def make():
        model, ids = Gpt(), torch.randint(0, 50257, (batch, 129))
        return adamw(model, lambda: F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten()))

    return make


def gpt_decode():
    model, ids = Gpt().eval(), torch.randint(0, 50257, (1, 1))
    caches = [(torch.zeros(1, 12, 512, 64, dtype=kind()), torch.zeros(1, 12, 512, 64, dtype=kind())) for _ in range(12)]

    def step():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            return model.decode(ids, caches, 511)

    return step


def classifier(make_model, batch, optimizer):
    def make():
        model, x, y = make_model(), images(batch, 3, 224, 224), classes(batch, 1000)
        return optimizer(model, lambda: F.cross_entropy(model(x), y))

    return make


def unet():
    model, x = UNet().to(memory_format=LAST), images(8, 3, 64, 64)
    return momentum(model, lambda: squares(model(x)))


def translation():
    model = Translation()
    source, target, labels = [torch.randint(0, 8000, (30, 32)) for _ in range(3)]
    return adamw(model, lambda: F.cross_entropy(model(source, target).flatten(0, 1), labels.flatten()))


GPT2_MATRICES = [(50257, 768), (1024, 768)] + 12 * [(768, 2304), (768, 768), (768, 3072), (3072, 768)]


def updates(shapes):
    def make():
        parameters = [torch.rand(shape).requires_grad_() for shape in shapes]
        for p in parameters:
            p.grad = torch.rand_like(p)
        return torch.optim.AdamW(parameters, 1e-3, fused=True).step

    return make


WORKLOADS = {
    "ew20-1M": elements(1 << 20), "ew20-16M": elements(16 << 20), "softmax-1kx1k": rows(1024), "softmax-16kx1k": rows(16384),
    "layernorm-fb-1kx1k": layer_norm, "gemm-64": product(64, 64, 64), "gemm-256": product(256, 256, 256),
    "gemm-1024": product(1024, 1024, 1024), "gemm-2048": product(2048, 2048, 2048), "gemm-tf-m1": product(1, 768, 3072),
    "gemm-tf-m8": product(8, 768, 3072), "gemm-tf-m128": product(128, 768, 3072),
    "rn50-infer-b1": lambda: infer(resnet50(), images(1, 3, 224, 224)),
    "rn50-infer-b8": lambda: infer(resnet50(), images(8, 3, 224, 224)), "rn50-train-b8": classifier(resnet50, 8, momentum),
    "mobilenetv2-infer-b4": lambda: infer(mobilenet(), images(4, 3, 224, 224)),
    "mobilenetv2-train-b4": classifier(mobilenet, 4, momentum), "unet-train-b8": unet,
    "gpt2b-fwd-b1": block(1, False), "gpt2b-fwd-b8": block(8, False), "gpt2b-train-b1": block(1, True),
    "gpt2b-train-b8": block(8, True), "gpt2s-infer-b1": lambda: infer(Gpt(), torch.randint(0, 50257, (1, 128))),
    "gpt2s-train-b1": gpt_training(1), "gpt2s-train-b4": gpt_training(4), "gpt2s-decode": gpt_decode,
    "bert-infer-b1": lambda: infer(nn.Sequential(*[Block(768, 12, False, False, False) for _ in range(12)]), torch.rand(1, 128, 768)),
    "vit-tiny-train-b8": classifier(Vit, 8, adamw), "gru-train-b32": translation,
    "adamw-61M": updates(26 * [(768, 3072)]), "adamw-124M": updates(GPT2_MATRICES),
    "depthwise-fb-b4": lambda: one_layer(nn.Conv2d(144, 144, 3, padding=1, groups=144, bias=False), images(4, 144, 56, 56), True),
    "conv-56-fb-b8-nchw": lambda: one_layer(nn.Conv2d(64, 64, 3, padding=1, bias=False), images(8, 64, 56, 56), False),
    "maxpool-112-fb-b8-nchw": one_pool,
}
WORKLOADS |= {f"{name}-nchw": WORKLOADS[name] for name in ("rn50-infer-b1", "rn50-train-b8")}


def measure(step, seconds):
    """Best and median milliseconds, and the seconds of the first step."""
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    step()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return {"best_ms": min(times) * 1e3, "median_ms": statistics.median(times) * 1e3, "first_s": first}


if __name__ == "__main__":
    if options.only not in WORKLOADS:
        sys.exit(77)  # this peer does not run it
    found = measure(WORKLOADS[options.only](), options.seconds)
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"name": options.only, **found}))
