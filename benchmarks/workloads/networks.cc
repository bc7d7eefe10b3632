// The networks: the definitions of benchmarks/peers/workloads_torch.py and workloads_jax.py, channels last.
#include "networks.h"

namespace workloads {
namespace {

Tensor Mean(Net& n, Tensor x, const Dims& dims) { return wf_mean(n.scope(), x, dims.data(), dims.size()); }
Tensor Loss(Net& n, Tensor logits, Tensor labels) { return wf_cross_entropy(n.scope(), logits, labels); }
Tensor Square(Net& n, Tensor y) { return wf_mean(n.scope(), wf_square(n.scope(), y)); }

// --- alone ---------------------------------------------------------------------------------------------------------------

Tensor TwentyOperations(Net& n, int64_t count) {
  wf_scope* const s = n.scope();
  Tensor a = n.Input({count}), b = n.Input({count}), c = n.Input({count});
  Tensor x = wf_add(s, wf_mul(s, a, b), c);
  x = wf_add(s, wf_tanh(s, x), a);
  x = wf_mul(s, x, wf_exp(s, wf_neg(s, wf_mul(s, b, b))));
  x = wf_div(s, x, wf_add_n(s, wf_mul(s, c, c), 1));
  x = wf_maximum(s, x, wf_sub(s, a, b));
  x = wf_sub(s, wf_add(s, wf_mul(s, x, x), wf_mul_n(s, x, 0.5)), c);
  x = wf_div(s, x, wf_add_n(s, wf_abs(s, x), 1));
  return wf_sub_n(s, wf_add(s, wf_mul(s, x, b), wf_mul(s, a, c)), 0.1);
}
Tensor Elementwise1M(Net& n) { return TwentyOperations(n, 1 << 20); }
Tensor Elementwise16M(Net& n) { return TwentyOperations(n, 16 << 20); }
Tensor Softmax1k(Net& n) { return wf_softmax(n.scope(), n.Input({1024, 1024})); }
Tensor Softmax16k(Net& n) { return wf_softmax(n.scope(), n.Input({16384, 1024})); }
Tensor LayerNorm(Net& n) {
  Tensor x = n.Param({1024, 1024}, 1);
  return wf_sum(n.scope(), wf_mul(n.scope(), n.LayerNorm(x, 1024), n.Input({1024, 1024})));
}
Tensor Product(Net& n, int64_t rows, int64_t inner, int64_t columns) {
  n.Count(static_cast<double>(rows * inner * columns));
  return wf_matmul(n.scope(), n.Input({rows, inner}), n.Input({inner, columns}));
}
Tensor Gemm64(Net& n) { return Product(n, 64, 64, 64); }
Tensor Gemm256(Net& n) { return Product(n, 256, 256, 256); }
Tensor Gemm1024(Net& n) { return Product(n, 1024, 1024, 1024); }
Tensor Gemm2048(Net& n) { return Product(n, 2048, 2048, 2048); }
Tensor Rows1(Net& n) { return Product(n, 1, 768, 3072); }
Tensor Rows8(Net& n) { return Product(n, 8, 768, 3072); }
Tensor Rows128(Net& n) { return Product(n, 128, 768, 3072); }

// AdamW reads four numbers and writes three for each.
Tensor Updates(Net& n, const std::vector<Dims>& matrices) {
  for (const Dims& dims : matrices) {
    n.Param(dims, 0.05);
    n.Input(dims);
  }
  return wf_scalar(n.scope(), WEFT_F32, 0);
}
Tensor Updates61M(Net& n) { return Updates(n, std::vector<Dims>(26, {768, 3072})); }
// The matrices of GPT-2 small.
Tensor Updates124M(Net& n) {
  std::vector<Dims> matrices = {{50257, 768}, {1024, 768}};
  for (int l = 0; l < 12; ++l) {
    for (const Dims& dims : {Dims{768, 2304}, Dims{768, 768}, Dims{768, 3072}, Dims{3072, 768}}) matrices.push_back(dims);
  }
  return Updates(n, matrices);
}

// A million operations, a thousand at a time, whose results nobody asks for.
Tensor Recorded(Net& n) {
  Tensor a = n.Input({64}), b = n.Input({64});
  for (int i = 0; i < 1000; ++i) {
    wf_scope* const s = wf_begin(n.context());
    Tensor x = a;
    for (int k = 0; k < 250; ++k) x = wf_tanh(s, wf_sub(s, wf_add(s, wf_mul(s, x, b), a), b));
    Must(wf_end(s));
  }
  return wf_scalar(n.scope(), WEFT_F32, 0);
}

// --- convolutions --------------------------------------------------------------------------------------------------------

Tensor Activated(Net& n, Tensor x) { return wf_relu(n.scope(), x); }

Tensor ResNet50(Net& n, Tensor x, bool training) {
  wf_scope* const s = n.scope();
  const auto conv = [&](Tensor t, int64_t in, int64_t out, int64_t k, int64_t stride) {
    return n.BatchNorm(n.Conv(t, in, out, k, stride), out, training);
  };
  x = n.MaxPool(Activated(n, conv(x, 3, 64, 7, 2)), 3, 2);
  int64_t in = 64;
  const int64_t stages[][3] = {{64, 3, 1}, {128, 4, 2}, {256, 6, 2}, {512, 3, 2}};
  for (const auto& [width, blocks, first_stride] : stages) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t stride = b == 0 ? first_stride : 1;
      Tensor h = Activated(n, conv(x, in, width, 1, 1));
      h = Activated(n, conv(h, width, width, 3, stride));
      h = conv(h, width, 4 * width, 1, 1);
      x = Activated(n, wf_add(s, h, b == 0 ? conv(x, in, 4 * width, 1, stride) : x));
      in = 4 * width;
    }
  }
  return n.Linear(Mean(n, x, n.Spatial()), 2048, 1000);
}
Tensor ResNet1(Net& n) { return ResNet50(n, n.Image(1, 224, 3), false); }
Tensor ResNet8(Net& n) { return ResNet50(n, n.Image(8, 224, 3), false); }
Tensor ResNetTraining(Net& n) { return Loss(n, ResNet50(n, n.Image(8, 224, 3), true), n.Ids({8}, 1000)); }

Tensor MobileNetV2(Net& n, Tensor x, bool training) {
  wf_scope* const s = n.scope();
  const auto conv = [&](Tensor t, int64_t in, int64_t out, int64_t k, int64_t stride, int64_t groups, bool bounded) {
    t = n.BatchNorm(n.Conv(t, in, out, k, stride, groups), out, training);
    return bounded ? wf_relu6(s, t) : t;
  };
  x = conv(x, 3, 32, 3, 2, 1, true);
  int64_t in = 32;
  const int64_t stages[][4] = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  for (const auto& [expansion, out, blocks, first_stride] : stages) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t stride = b == 0 ? first_stride : 1, wide = in * expansion;
      Tensor h = expansion == 1 ? x : conv(x, in, wide, 1, 1, 1, true);
      h = conv(conv(h, wide, wide, 3, stride, wide, true), wide, out, 1, 1, 1, false);
      x = stride == 1 && in == out ? wf_add(s, x, h) : h;
      in = out;
    }
  }
  x = conv(x, 320, 1280, 1, 1, 1, true);
  return n.Linear(Mean(n, x, n.Spatial()), 1280, 1000);
}
Tensor MobileNet(Net& n) { return MobileNetV2(n, n.Image(4, 224, 3), false); }
Tensor MobileNetTraining(Net& n) { return Loss(n, MobileNetV2(n, n.Image(4, 224, 3), true), n.Ids({4}, 1000)); }

// Down thrice and up again, two convolutions a level, from 32 features on; 2 x 2 transposed convolutions double the sides.
Tensor Unet(Net& n) {
  wf_scope* const s = n.scope();
  const auto twice = [&](Tensor t, int64_t in, int64_t out) {
    for (int i = 0; i < 2; ++i) t = Activated(n, n.BatchNorm(n.Conv(t, i == 0 ? in : out, out, 3), out, true));
    return t;
  };
  const int64_t window[] = {2, 2};
  Tensor x = twice(n.Image(8, 64, 3), 3, 32), levels[3];
  int64_t width = 32;
  for (Tensor& level : levels) {
    level = x;
    x = twice(wf_max_pool(s, x, window, 2), width, 2 * width);
    width *= 2;
  }
  for (int i = 2; i >= 0; --i) {
    width /= 2;
    const int64_t strides[] = {2, 2};
    x = wf_conv_transpose(s, x, n.Param({2, 2, 2 * width, width}, 0.05), strides, 2);
    const Dims d = n.Shape(x);
    n.Count(static_cast<double>(d[0] * d[1] * d[2] * d[3]) * static_cast<double>(2 * width));
    Tensor both[] = {x, levels[i]};
    x = twice(wf_concatenate(s, both, 2, 3), 2 * width, width);
  }
  return Square(n, n.Conv(x, 32, 1, 1));
}

// --- transformers --------------------------------------------------------------------------------------------------------

Tensor Gpt2Block(Net& n, int64_t batch) { return n.Block(n.Input({batch, 128, 768}), 768, 12, true, true, true); }
Tensor Gpt2Block1(Net& n) { return Gpt2Block(n, 1); }
Tensor Gpt2Block8(Net& n) { return Gpt2Block(n, 8); }
Tensor Gpt2Block1Training(Net& n) { return Square(n, Gpt2Block(n, 1)); }
Tensor Gpt2Block8Training(Net& n) { return Square(n, Gpt2Block(n, 8)); }

constexpr int64_t kVocabulary = 50257;

Tensor Gpt2Small(Net& n, int64_t batch) {
  wf_scope* const s = n.scope();
  Tensor words = n.Param({kVocabulary, 768}, 0.05), places = n.Param({1024, 768}, 0.05);
  Tensor x = wf_add(s, wf_embedding(s, words, n.Ids({batch, 128}, kVocabulary)), wf_slice_in_dim(s, places, 0, 0, 128));
  for (int l = 0; l < 12; ++l) x = n.Block(x, 768, 12, true, true, true);
  n.Count(static_cast<double>(batch) * 128 * 768 * kVocabulary);
  return wf_matmul(s, n.LayerNorm(x, 768), n.Transpose(words, {1, 0}));
}
Tensor Gpt2Training(Net& n, int64_t batch) {
  Tensor logits = Gpt2Small(n, batch);
  return Loss(n, n.Reshape(logits, {batch * 128, kVocabulary}), n.Ids({batch * 128}, kVocabulary));
}
Tensor Gpt2Inference(Net& n) { return Gpt2Small(n, 1); }
Tensor Gpt2Training1(Net& n) { return Gpt2Training(n, 1); }
Tensor Gpt2Training4(Net& n) { return Gpt2Training(n, 4); }

// One token behind 511 others whose keys and values are kept.
Tensor Gpt2Decode(Net& n) {
  wf_scope* const s = n.scope();
  constexpr int64_t kPlaces = 512, kHeads = 12, kWidth = 768, kHead = kWidth / kHeads;
  Tensor words = n.Param({kVocabulary, kWidth}, 0.05), places = n.Param({1024, kWidth}, 0.05), at = n.Ids({}, kPlaces);
  Tensor zero = wf_sub(s, at, at), begin[] = {zero, zero, at, zero};
  Tensor x = wf_add(s, wf_embedding(s, words, n.Ids({1, 1}, kVocabulary)), wf_slice_in_dim(s, places, 0, kPlaces - 1, kPlaces));
  for (int l = 0; l < 12; ++l) {
    Tensor qkv[3];
    wf_chunk(s, n.Linear(n.LayerNorm(x, kWidth), kWidth, 3 * kWidth), 3, -1, qkv, 3);
    for (Tensor& part : qkv) part = n.Heads(part, kHeads);
    for (int i = 1; i < 3; ++i) {
      Tensor kept = n.State({1, kHeads, kPlaces, kHead});
      qkv[i] = wf_dynamic_update_slice(s, kept, qkv[i], begin, 4);
      n.Assign(kept, qkv[i]);
    }
    Tensor h = n.MergeHeads(wf_scaled_dot_product_attention(s, qkv[0], qkv[1], qkv[2], nullptr));
    x = wf_add(s, x, n.Linear(h, kWidth, kWidth));
    h = n.Linear(n.LayerNorm(x, kWidth), kWidth, 4 * kWidth);
    x = wf_add(s, x, n.Linear(wf_gelu(s, h, WEFT_GELU_FORM_TANH), 4 * kWidth, kWidth));
  }
  return wf_matmul(s, n.LayerNorm(x, kWidth), n.Transpose(words, {1, 0}));
}

Tensor Bert(Net& n) {
  Tensor x = n.Input({1, 128, 768});
  for (int l = 0; l < 12; ++l) x = n.Block(x, 768, 12, false, false, false);
  return x;
}

Tensor VitTiny(Net& n) {
  wf_scope* const s = n.scope();
  constexpr int64_t kBatch = 8, kWidth = 192, kPatches = 196;
  Tensor x = n.Reshape(n.Input({kBatch, 224, 224, 3}), {kBatch, 14, 16, 14, 16, 3});
  x = n.Linear(n.Reshape(n.Transpose(x, {0, 1, 3, 2, 4, 5}), {kBatch, kPatches, 768}), 768, kWidth);
  const int64_t first[] = {kBatch, 1, kWidth};
  Tensor both[] = {wf_broadcast_to(s, n.Param({1, 1, kWidth}, 0.02), first, 3), x};
  x = wf_add(s, wf_concatenate(s, both, 2, 1), n.Param({1, kPatches + 1, kWidth}, 0.02));
  for (int l = 0; l < 12; ++l) x = n.Block(x, kWidth, 3, false, true, false);
  x = n.Reshape(wf_slice_in_dim(s, n.LayerNorm(x, kWidth), 1, 0, 1), {kBatch, kWidth});
  return Loss(n, n.Linear(x, kWidth, 1000), n.Ids({kBatch}, 1000));
}

// --- recurrent -----------------------------------------------------------------------------------------------------------

// xs [steps, batch, features] -> each step's state, and the last in *h; the gates of the inputs are one product for all steps.
// PyTorch's GRU.
Tensor Gru(Net& n, const char* name, Tensor xs, Tensor* h, int64_t width) {
  const Dims d = n.Shape(xs);
  Tensor gates = n.Linear(xs, d[2], 3 * width), w = n.Param({width, 3 * width}, 0.06), bias = n.Param({3 * width}, 0);
  weft_function* const cell = n.Function(name, {{d[1], width}, {d[1], 3 * width}}, 2, [&](wf_scope* s, weft_tensor* const* in) {
    Tensor x[3], r[3];
    wf_chunk(s, in[1], 3, -1, x, 3);
    wf_chunk(s, wf_add(s, wf_matmul(s, in[0], w), bias), 3, -1, r, 3);
    Tensor reset = wf_sigmoid(s, wf_add(s, x[0], r[0])), update = wf_sigmoid(s, wf_add(s, x[1], r[1]));
    Tensor fresh = wf_tanh(s, wf_add(s, x[2], wf_mul(s, reset, r[2])));
    Tensor next = wf_add(s, fresh, wf_mul(s, update, wf_sub(s, in[0], fresh)));
    return std::vector<Tensor>{next, wf_copy(s, next)};
  });
  n.Count(static_cast<double>(d[0] * d[1] * width) * static_cast<double>(3 * width));
  Tensor out[2];
  wf_scan(n.scope(), cell, h, 1, &gates, 1, out, 2);
  *h = out[0];
  return out[1];
}

// A sentence of 30 words becomes another one: words of 256 numbers, states of 512, 8,000 words.
Tensor Translation(Net& n) {
  wf_scope* const s = n.scope();
  constexpr int64_t kWords = 8000, kSteps = 30, kBatch = 32, kState = 512;
  const int64_t state[] = {kBatch, kState};
  Tensor h = wf_full(s, state, 2, 0);
  if (n.dtype() != WEFT_F32) h = wf_convert(s, h, n.dtype());
  Gru(n, "encoder", wf_embedding(s, n.Param({kWords, 256}, 0.05), n.Ids({kSteps, kBatch}, kWords)), &h, kState);
  Tensor all = Gru(n, "decoder", wf_embedding(s, n.Param({kWords, 256}, 0.05), n.Ids({kSteps, kBatch}, kWords)), &h, kState);
  return Loss(n, n.Linear(n.Reshape(all, {kSteps * kBatch, kState}), kState, kWords), n.Ids({kSteps * kBatch}, kWords));
}

// With the gradients of the image and of the kernel.
Tensor Depthwise(Net& n) { return Square(n, n.Conv(n.Param({4, 56, 56, 144}, 1), 144, 144, 3, 1, 144)); }
Tensor OneConvolution(Net& n) { return n.Conv(n.Image(8, 56, 64), 64, 64, 3); }
Tensor OneConvolutionTraining(Net& n) { return Square(n, OneConvolution(n)); }
Tensor OnePool(Net& n) { return n.MaxPool(n.Image(8, 112, 64), 3, 2); }
// The pool reads a sum with a parameter, so that it has a gradient.
Tensor OnePoolTraining(Net& n) { return Square(n, n.MaxPool(wf_add(n.scope(), n.Image(8, 112, 64), n.Param({1}, 0.1)), 3, 2)); }

constexpr double k61M = 26 * 768 * 3072.0, k124M = 768.0 * (50257 + 1024 + 12 * 12 * 768);

constexpr Workload kAll[] = {
    {"ew20-1M", Does::kInfer, 0.0168, Elementwise1M, true, "twenty element-wise operations"},
    {"ew20-16M", Does::kInfer, 0.268, Elementwise16M, true, "the same of 16 M elements"},
    {"softmax-1kx1k", Does::kInfer, 0.0084, Softmax1k, true, "rows of 1,024"},
    {"softmax-16kx1k", Does::kInfer, 0.134, Softmax16k, true, "rows of 1,024"},
    {"layernorm-fb-1kx1k", Does::kGradients, 0.0126, LayerNorm, true, "with the gradients of all three operands"},
    {"gemm-64", Does::kInfer, 0, Gemm64, true, "64³"},
    {"gemm-256", Does::kInfer, 0, Gemm256, true, "256³"},
    {"gemm-1024", Does::kInfer, 0, Gemm1024, true, "1,024³"},
    {"gemm-2048", Does::kInfer, 0, Gemm2048, true, "2,048³"},
    {"gemm-tf-m1", Does::kInfer, 0.0094, Rows1, true, "1 × 768 × 3072"},
    {"gemm-tf-m8", Does::kInfer, 0, Rows8, true, "8 × 768 × 3072"},
    {"gemm-tf-m128", Does::kInfer, 0, Rows128, true, "128 × 768 × 3072"},
    {"rn50-infer-b1", Does::kInfer, 0, ResNet1, true, "ResNet-50 at 224²", true},
    {"rn50-infer-b8", Does::kInfer, 0, ResNet8, true, "ResNet-50 at 224²", true},
    {"rn50-train-b8", Does::kMomentum, 0, ResNetTraining, true, "ResNet-50 at 224²", true},
    {"mobilenetv2-infer-b4", Does::kInfer, 0, MobileNet, true, "MobileNetV2 at 224²", true},
    {"mobilenetv2-train-b4", Does::kMomentum, 0, MobileNetTraining, true, "MobileNetV2 at 224²", true},
    {"unet-train-b8", Does::kMomentum, 0, Unet, true, "U-Net of 32 to 256 features at 64²"},
    {"gpt2b-fwd-b1", Does::kInfer, 0, Gpt2Block1, true, "a block of GPT-2, 128 tokens"},
    {"gpt2b-fwd-b8", Does::kInfer, 0, Gpt2Block8, true, "a block of GPT-2, 128 tokens"},
    {"gpt2b-train-b1", Does::kAdamW, 0, Gpt2Block1Training, true, "a block of GPT-2, 128 tokens"},
    {"gpt2b-train-b8", Does::kAdamW, 0, Gpt2Block8Training, true, "a block of GPT-2, 128 tokens"},
    {"gpt2s-infer-b1", Does::kInfer, 0, Gpt2Inference, true, "GPT-2 small, 128 tokens"},
    {"gpt2s-train-b1", Does::kAdamW, 0, Gpt2Training1, true, "GPT-2 small, 128 tokens"},
    {"gpt2s-train-b4", Does::kAdamW, 0, Gpt2Training4, true, "GPT-2 small, 128 tokens"},
    {"gpt2s-decode", Does::kInfer, 0.498, Gpt2Decode, true, "GPT-2 small, one token behind 511"},
    {"bert-infer-b1", Does::kInfer, 0, Bert, true, "BERT-base, 128 tokens"},
    {"vit-tiny-train-b8", Does::kAdamW, 0, VitTiny, true, "ViT-Tiny at 224²"},
    {"gru-train-b32", Does::kAdamW, 0, Translation, false, "GRU, sequence to sequence of 30"},
    {"adamw-61M", Does::kUpdate, 28e-9 * k61M, Updates61M, false, "AdamW over 61 M parameters"},
    {"adamw-124M", Does::kUpdate, 28e-9 * k124M, Updates124M, false, "AdamW over the 124 M of GPT-2 small"},
    {"depthwise-fb-b4", Does::kGradients, 0, Depthwise, true, "depthwise 3x3 of 144 features at 56², with both gradients"},
    {"rn50-infer-b1-nchw", Does::kInfer, 0, ResNet1, true, "ResNet-50, channels first", true, true},
    {"rn50-train-b8-nchw", Does::kMomentum, 0, ResNetTraining, true, "ResNet-50, channels first", true, true},
    {"conv-56-fb-b8-nchw", Does::kGradients, 0, OneConvolutionTraining, true, "3x3 of 64 features at 56², with its kernel's gradient", true, true, 2},
    {"maxpool-112-fb-b8-nchw", Does::kGradients, 0.096, OnePoolTraining, true, "3x3 of stride 2, 64 features at 112², with its gradient", true, true},
    {"record-1M", Does::kInfer, 0, Recorded, false, "a million operations recorded, none run"},
};

constexpr Workload kLayers[] = {
    {"conv-56-b8", Does::kInfer, 0, OneConvolution, true, "3x3, 64 to 64 features at 56²", true},
    {"conv-56-fb-b8", Does::kGradients, 0, OneConvolutionTraining, true, "with the gradient of its kernel", true, false, 2},
    {"maxpool-112-b8", Does::kInfer, 0.032, OnePool, true, "3x3 of stride 2, 64 features at 112²", true},
    {"maxpool-112-fb-b8", Does::kGradients, 0.096, OnePoolTraining, true, "with its gradient", true},
};

}  // namespace

std::span<const Workload> All() { return kAll; }
std::span<const Workload> Layers() { return kLayers; }

}  // namespace workloads
