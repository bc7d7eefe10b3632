// Matrix products by plain loops: integers, bool and odd pairs of types. Correct, parallel over rows, not tuned.
#include <algorithm>

#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/backends/cpu/kernels/product/product.h"
#include "src/backends/cpu/kernels/tiles/elements.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

template <typename T>
void Rows(const GemmCall& call, int64_t begin, int64_t end) {
  using Rule = ElementRule<T>;
  const int64_t c_stride = call.c_row_stride != 0 ? call.c_row_stride : call.n;
  PieceLook look(static_cast<double>(call.n));
  for (int64_t flat = begin; flat < end; ++flat) {
    const int64_t row = flat % call.m;
    const int64_t member = flat / call.m;
    const auto [a0, b0, c0] = OffsetsOf(call, member);
    const T* a = static_cast<const T*>(call.a.data) + a0 + row * call.a.row_stride;
    const T* b = static_cast<const T*>(call.b.data) + b0;
    T* c = static_cast<T*>(call.c) + c0 + row * c_stride;
    std::fill(c, c + call.n, T{});
    for (int64_t k = 0; k < call.k; ++k) {
      if (look.Ends()) return;
      const auto left = Rule::Load(a[k * call.a.col_stride]);
      const T* right = b + k * call.b.row_stride;
      for (int64_t j = 0; j < call.n; ++j) {
        c[j] = Rule::Store(Rule::Add(Rule::Load(c[j]), Rule::Multiply(left, Rule::Load(right[j * call.b.col_stride]))));
      }
    }
    if (call.epilogue.consume != nullptr) call.epilogue.consume(call.epilogue.context, call.c, row, 1, 0, call.n);
    if (call.epilogue.run != nullptr) call.epilogue.run(call.epilogue.context, member, row, 1, 0, call.n);
  }
}

const char* Refuses(const Product& product) {
  return product.amx || product.registers ? "tiles serve the types" : nullptr;
}

absl::Status Run(const Product& product, KernelSet&, KernelSet::State&, const Duty& duty) {
  if (duty.pool == nullptr) return absl::OkStatus();
  const GemmCall& call = product.call;
  const bool served = call.input == call.output && !IsFloat(call.input);
  const int64_t rows = call.m * Members(call);
  const bool known =
      served && VisitElement(call.input, [&]<typename T>() {
        if (rows * call.n * call.k < 20'000) return Rows<T>(call, 0, rows);
        duty.pool->ParallelRanges(rows, [&](int64_t begin, int64_t end, int) { Rows<T>(call, begin, end); });
      });
  if (known) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kUnimplemented, "the CPU backend has no matrix product from ",
                     NameOf(call.input), " to ", NameOf(call.output));
}

}  // namespace

constinit const ProductImplementation kProductPlain = {"gemm plain", Refuses, Run};

}  // namespace weft::cpu
