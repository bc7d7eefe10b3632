// See net.h.
#include "net.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace workloads {
namespace {

size_t CountOf(const Dims& dims) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
  return count;
}

uint64_t Draw() {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}

}  // namespace

void Must(weft_error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "workloads: %s\n", weft_error_message(error, nullptr));
  std::exit(1);
}

Net::~Net() {
  for (const List* list : {&parameters_, &inputs_, &states_}) {
    for (Tensor tensor : list->made) weft_tensor_release(tensor);
  }
  ReleaseFunctions();
}

void Net::ReleaseFunctions() {
  for (weft_function* function : functions_) weft_function_release(function);
  functions_.clear();
}

void Net::Begin(wf_scope* scope) {
  first_ = !begun_;
  begun_ = true;
  s_ = scope;
  parameters_.next = inputs_.next = states_.next = 0;
  ReleaseFunctions();
}

Tensor Net::Take(List* list, const std::function<Tensor()>& make) {
  if (list->next == list->made.size()) list->made.push_back(make());
  return list->made[list->next++];
}

Tensor Net::Random(const Dims& dims, double scale, double fill) {
  std::vector<float> values(CountOf(dims), static_cast<float>(fill));
  if (scale > 0) {
    for (float& value : values) value = static_cast<float>((static_cast<double>(Draw()) * 0x1p-30 - 1) * scale);
  }
  Tensor made = nullptr;
  Must(weft_tensor_from_host(ctx_, nullptr, WEFT_F32, dims.data(), dims.size(), values.data(), values.size() * 4, &made));
  if (dtype_ == WEFT_F32) return made;
  Tensor narrow = nullptr;
  Must(weft_convert(ctx_, made, dtype_, &narrow));
  Must(weft_eval(ctx_, &narrow, 1, nullptr));
  weft_tensor_release(made);
  return narrow;
}

Tensor Net::Param(const Dims& dims, double scale, double fill) {
  return Take(&parameters_, [&] {
    Tensor made = Random(dims, scale, fill);
    Must(weft_tensor_require_grad(made, 1));
    return made;
  });
}

Tensor Net::Input(const Dims& dims, double scale) {
  return Take(&inputs_, [&] { return Random(dims, scale, 0); });
}

Tensor Net::State(const Dims& dims) {
  return Take(&states_, [&] { return Random(dims, 0, 0); });
}

Tensor Net::Ids(const Dims& dims, int64_t below) {
  return Take(&inputs_, [&] {
    std::vector<int32_t> ids(CountOf(dims));
    for (int32_t& id : ids) id = static_cast<int32_t>(Draw() % static_cast<uint64_t>(below));
    Tensor made = nullptr;
    Must(weft_tensor_from_host(ctx_, nullptr, WEFT_I32, dims.data(), dims.size(), ids.data(), ids.size() * 4, &made));
    return made;
  });
}

weft_function* Net::Function(const char* name, const std::vector<Dims>& inputs, size_t results, const Body& body) {
  std::vector<weft_tensor_info> infos;
  for (const Dims& dims : inputs) {
    weft_tensor_info info = {};
    info.dtype = dtype_;
    for (const int64_t dim : dims) info.dims[info.rank++] = dim;
    infos.push_back(info);
  }
  const auto trace = [](void* data, weft_context* inside, weft_tensor* const* in, size_t, weft_tensor** out, size_t,
                        size_t* out_count) -> weft_error* {
    wf_scope* const s = wf_begin(inside);
    *out_count = 0;
    for (Tensor result : (*static_cast<const Body*>(data))(s, in)) out[(*out_count)++] = wf_keep(s, result);
    return wf_end(s);
  };
  weft_function* made = nullptr;
  Must(weft_function_trace(ctx_, name, WEFT_STRLEN, infos.data(), infos.size(), trace, const_cast<Body*>(&body), results, &made));
  functions_.push_back(made);
  return made;
}

Dims Net::Shape(Tensor x) const {
  Dims dims(8);
  size_t rank = 0;
  Must(weft_tensor_dims(x, dims.data(), dims.size(), &rank));
  dims.resize(rank);
  return dims;
}

Tensor Net::Linear(Tensor x, int64_t in, int64_t out, bool bias) {
  Tensor w = Param({in, out}, 1 / std::sqrt(static_cast<double>(in)));
  Count(static_cast<double>(CountOf(Shape(x))) * static_cast<double>(out));
  Tensor y = wf_matmul(s_, x, w);
  return bias ? wf_add(s_, y, Param({out}, 0)) : y;
}

Tensor Net::Image(int64_t batch, int64_t side, int64_t features) {
  return Input(channels_first_ ? Dims{batch, features, side, side} : Dims{batch, side, side, features});
}

Tensor Net::Conv(Tensor x, int64_t in, int64_t out, int64_t k, int64_t stride, int64_t groups) {
  const int64_t half = k / 2, strides[] = {stride, stride}, pads[] = {half, half, half, half}, ones[] = {1, 1};
  const Dims kernel = channels_first_ ? Dims{out, in / groups, k, k} : Dims{k, k, in / groups, out};
  Tensor w = Param(kernel, 1 / std::sqrt(static_cast<double>(k * k * in / groups)));
  const int64_t nchw[] = {0, 1, 2, 3}, oihw[] = {1, 0, 2, 3};
  Tensor y = channels_first_ ? wf_convolution(s_, x, w, strides, 2, pads, 4, ones, 2, ones, 2, nchw, 4, oihw, 4, nchw, 4, groups)
                             : wf_conv(s_, x, w, strides, 2, WEFT_CONV_PADDING_EXPLICIT, pads, 4, nullptr, 0, groups);
  Count(static_cast<double>(CountOf(Shape(y))) * static_cast<double>(k * k * in / groups));
  return y;
}

Tensor Net::MaxPool(Tensor x, int64_t k, int64_t stride) {
  const int64_t window[] = {k, k}, strides[] = {stride, stride}, low = (k - 1) / 2, pads[] = {low, low, low, low};
  if (!channels_first_) return wf_max_pool(s_, x, window, 2, strides, 2, WEFT_MAX_POOL_PADDING_EXPLICIT, pads, 4);
  const int64_t windows[] = {1, 1, k, k}, steps[] = {1, 1, stride, stride}, around[] = {0, 0, 0, 0, low, low, low, low};
  return wf_reduce_window(s_, x, windows, 4, WEFT_REDUCE_WINDOW_REDUCER_MAX, steps, 4, nullptr, 0, nullptr, 0, around, 8);
}

Tensor Net::BatchNorm(Tensor x, int64_t features, bool training) {
  Tensor scale = Param({features}, 0, 1), offset = Param({features}, 0);
  const int64_t axis = FeatureAxis();
  if (training) return wf_batch_norm(s_, x, scale, offset, nullptr, nullptr, nullptr, axis);
  Tensor mean = Param({features}, 0.1), variance = Param({features}, 0, 1);
  return wf_batch_norm_inference(s_, x, scale, offset, mean, variance, axis);
}

Tensor Net::LayerNorm(Tensor x, int64_t features) {
  Tensor scale = Param({features}, 0, 1), offset = Param({features}, 0);
  return wf_layer_norm(s_, x, scale, offset);
}

Tensor Net::Heads(Tensor x, int64_t heads) {
  const Dims dims = Shape(x);
  return Transpose(Reshape(x, {dims[0], dims[1], heads, dims[2] / heads}), {0, 2, 1, 3});
}

Tensor Net::MergeHeads(Tensor x) {
  const Dims dims = Shape(x);
  return Reshape(Transpose(x, {0, 2, 1, 3}), {dims[0], dims[2], dims[1] * dims[3]});
}

Tensor Net::Block(Tensor x, int64_t width, int64_t heads, bool causal, bool norms_before, bool tanh_gelu) {
  const auto attention = [&](Tensor h) {
    Tensor qkv[3];
    wf_chunk(s_, Linear(h, width, 3 * width), 3, -1, qkv, 3);
    for (Tensor& part : qkv) part = Heads(part, heads);
    const Dims dims = Shape(h);
    Count(2.0 * static_cast<double>(dims[0] * dims[1] * dims[1] * width));
    return Linear(MergeHeads(wf_scaled_dot_product_attention(s_, qkv[0], qkv[1], qkv[2], nullptr, causal)), width, width);
  };
  const auto feed_forward = [&](Tensor h) {
    const weft_gelu_form form = tanh_gelu ? WEFT_GELU_FORM_TANH : WEFT_GELU_FORM_ERF;
    return Linear(wf_gelu(s_, Linear(h, width, 4 * width), form), 4 * width, width);
  };
  if (norms_before) {
    x = wf_add(s_, x, attention(LayerNorm(x, width)));
    return wf_add(s_, x, feed_forward(LayerNorm(x, width)));
  }
  x = LayerNorm(wf_add(s_, x, attention(x)), width);
  return LayerNorm(wf_add(s_, x, feed_forward(x)), width);
}

}  // namespace workloads
