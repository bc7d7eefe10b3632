// A network that is recorded anew each step: its parameters, inputs and states are made when the first step asks for them, in
// order, and found again by every later one. Counts the operations of products on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "weft.h"
#include "weft_fluent.h"

namespace workloads {

using Dims = std::vector<int64_t>;
using Tensor = weft_tensor*;

// Ends the process with the error's text: a benchmark has nothing to go on with.
void Must(weft_error* error);

class Net {
 public:
  // `channels_first`: images are NCHW and kernels OIHW, as PyTorch has them.
  Net(weft_context* ctx, weft_dtype dtype, bool channels_first) : ctx_(ctx), dtype_(dtype), channels_first_(channels_first) {}
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  // The next step is recorded in this scope.
  void Begin(wf_scope* scope);
  wf_scope* scope() const { return s_; }
  weft_context* context() const { return ctx_; }
  weft_dtype dtype() const { return dtype_; }
  const std::vector<Tensor>& parameters() const { return parameters_.made; }
  const std::vector<Tensor>& inputs() const { return inputs_.made; }
  double gflop() const { return gflop_; }  // of the products of one step's forward pass

  // Uniform numbers up to `scale` on either side; `scale` 0: all `fill`. Parameters have gradients.
  Tensor Param(const Dims& dims, double scale, double fill = 0);
  Tensor Input(const Dims& dims, double scale = 1);
  Tensor Ids(const Dims& dims, int64_t below);
  // Zeros at first, then what Assign gave it: a key-value cache.
  Tensor State(const Dims& dims);
  void Assign(Tensor state, Tensor value) { Must(weft_tensor_assign(state, value)); }
  // Recorded each step, because what it captures are this step's parameters.
  using Body = std::function<std::vector<Tensor>(wf_scope* s, weft_tensor* const* in)>;
  weft_function* Function(const char* name, const std::vector<Dims>& inputs, size_t results, const Body& body);

  Tensor Linear(Tensor x, int64_t in, int64_t out, bool bias = true);
  // The input of a network of images, and where its rows, columns and features are.
  Tensor Image(int64_t batch, int64_t side, int64_t features);
  Dims Spatial() const { return channels_first_ ? Dims{2, 3} : Dims{1, 2}; }
  int64_t FeatureAxis() const { return channels_first_ ? 1 : 3; }
  // Square kernel of side k, padded by half of it.
  Tensor Conv(Tensor x, int64_t in, int64_t out, int64_t k, int64_t stride = 1, int64_t groups = 1);
  // Square window of side k, padded by half of it less a half.
  Tensor MaxPool(Tensor x, int64_t k, int64_t stride);
  // By the batch's own mean and variance in training, by given ones else.
  Tensor BatchNorm(Tensor x, int64_t features, bool training);
  Tensor LayerNorm(Tensor x, int64_t features);
  // [batch, tokens, width]; a transformer's block with its norms before (GPT) or behind (BERT).
  Tensor Block(Tensor x, int64_t width, int64_t heads, bool causal, bool norms_before, bool tanh_gelu);
  Tensor Heads(Tensor x, int64_t heads);          // [b, t, w] -> [b, h, t, w / h]
  Tensor MergeHeads(Tensor x);                    // back
  Tensor Reshape(Tensor x, const Dims& dims) { return wf_reshape(s_, x, dims.data(), dims.size()); }
  Tensor Transpose(Tensor x, const Dims& order) { return wf_transpose(s_, x, order.data(), order.size()); }
  Dims Shape(Tensor x) const;
  void Count(double multiply_adds) { gflop_ += first_ ? 2e-9 * multiply_adds : 0; }

 private:
  struct List {
    std::vector<Tensor> made;
    size_t next = 0;
  };
  Tensor Take(List* list, const std::function<Tensor()>& make);
  void ReleaseFunctions();
  Tensor Random(const Dims& dims, double scale, double fill);

  weft_context* ctx_;
  weft_dtype dtype_;
  wf_scope* s_ = nullptr;
  List parameters_, inputs_, states_;
  std::vector<weft_function*> functions_;
  bool channels_first_;
  bool first_ = true, begun_ = false;
  double gflop_ = 0;
};

}  // namespace workloads
