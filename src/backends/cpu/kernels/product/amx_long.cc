// Products on tiles whose K is very long (gradients of convolution kernels run over all pixels): stretches of it are products by
// themselves, whose results are added in pairs, as gemm_long.cc does it.
#include <algorithm>
#include <cstring>

#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/backends/cpu/kernels/tiles/pairwise.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kStretch = 32768;  // 64 blocks of K

class From : public TileOperands {
 public:
  From(const TileOperands& all, int64_t k) : all_(all), k_(k) {}
  void PackA(int64_t row, int64_t rows, int64_t k0, int64_t length, char* out) const override {
    all_.PackA(row, rows, k_ + k0, length, out);
  }
  void PackB(int64_t column, int64_t columns, int64_t k0, int64_t length, char* out) const override {
    all_.PackB(column, columns, k_ + k0, length, out);
  }

 private:
  const TileOperands& all_;
  const int64_t k_;
};

TileProduct StretchOf(const TileProduct& product, const From& operands, int64_t k, float* to) {
  TileProduct part = product;
  part.operands = &operands;
  part.k = std::min(kStretch, product.k - k);
  if (part.a != nullptr) part.a += k * product.element();
  part.output = DType::kF32;
  part.c = reinterpret_cast<char*>(to);
  part.c_stride = product.n;
  part.scattered = false;
  part.epilogue = {};
  return part;
}

void Finish(const TileProduct& p, const float* sums, int64_t row) {
  int64_t to = row;
  if (p.scattered) p.operands->ResultRows(row, 1, &to);
  if (p.output == DType::kF32) {
    std::memcpy(p.c + to * p.c_stride * 4, sums + row * p.n, static_cast<size_t>(p.n) * 4);
  } else {
    Narrow(p.output, sums + row * p.n, p.n, p.c + to * p.c_stride * 2, p.c_stride, 1, p.n);
  }
  const Epilogue& epilogue = p.epilogue;
  if (epilogue.consume != nullptr) {
    epilogue.consume(epilogue.context, p.c, to, 1, p.column0, p.n);
  } else if (epilogue.run != nullptr) {
    epilogue.run(epilogue.context, p.member, to, 1, p.column0, p.n);
  }
}

}  // namespace

bool IsLong(const TileProduct& product) {
  return product.k > kStretch && !product.b_packed && !product.accumulate && !IsInteger(product.input);
}

absl::Status RunLong(KernelSet::State& state, const TileProduct& product, const Duty& duty, bool dealt) {
  const int64_t stretches = CeilDiv(product.k, kStretch), size = product.m * product.n;
  const int64_t bytes = PairwiseBuffers(stretches) * size * 4;
  if (duty.pool == nullptr) {
    dealt ? duty.needs->Each(ScratchSlot::kSums, bytes) : duty.needs->Once(ScratchSlot::kSums, bytes);
    const From first(*product.operands, 0);
    return RunTiles(state, StretchOf(product, first, 0, nullptr), duty, dealt);
  }
  auto* const sums = static_cast<float*>(ThreadScratch(ScratchSlot::kSums, bytes));
  if (sums == nullptr) return OutOfScratch("a matrix product's partial sums", bytes);
  absl::Status status;
  SumPairwise(
      stretches,
      [&](int64_t index, int64_t buffer) {
        const From later(*product.operands, index * kStretch);
        if (status.ok() && !LaunchEnds())
          status = RunTiles(state, StretchOf(product, later, index * kStretch, sums + buffer * size), duty, dealt);
      },
      [&](int64_t to, int64_t from) {
        for (int64_t i = 0; i < size; ++i) sums[to * size + i] += sums[from * size + i];
      });
  for (int64_t row = 0; status.ok() && row < product.m; ++row) Finish(product, sums, row);
  return status;
}

}  // namespace weft::cpu
