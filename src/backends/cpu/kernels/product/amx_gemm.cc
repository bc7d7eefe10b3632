// Matrix products of bf16 and of bytes whose operands are matrices.
#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/backends/cpu/kernels/product/product.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr double kDealtWork = 1'000'000;  // of all members of a batch: below, they run on one thread

class Matrices : public TileOperands {
 public:
  Matrices(const CpuTarget& target, const GemmCall& call, const char* a, const char* b)
      : target_(target), call_(call), element_(BytesOf(call.input)), a_(a), b_(b) {}

  void PackA(int64_t row, int64_t rows, int64_t k0, int64_t length, char* out) const override {
    const MatrixView& a = call_.a;
    PackTileRows(target_, element_,
                 {a_ + (row * a.row_stride + k0 * a.col_stride) * element_, a.col_stride, a.row_stride}, rows, length,
                 out);
  }
  void PackB(int64_t column, int64_t columns, int64_t k0, int64_t length, char* out) const override {
    const MatrixView& b = call_.b;
    PackTileColumns(target_, element_,
                    {b_ + (k0 * b.row_stride + column * b.col_stride) * element_, b.row_stride, b.col_stride}, columns,
                    length, out);
  }

 private:
  const CpuTarget& target_;
  const GemmCall& call_;
  const int64_t element_;
  const char* a_;
  const char* b_;
};

// Null pointers stay null: preparations have none.
const char* At(const void* data, int64_t bytes) {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + bytes;
}

absl::Status RunMember(KernelSet::State& state, const GemmCall& call, int64_t member, const Duty& duty, bool dealt) {
  const MemberOffsets offsets = OffsetsOf(call, member);
  const int64_t element = BytesOf(call.input);
  const Matrices operands(state.target(), call, At(call.a.data, offsets.a * element),
                          At(call.b.data, offsets.b * element));
  TileProduct product;
  product.operands = &operands;
  product.m = call.m;
  product.n = call.n;
  product.k = call.k;
  product.a_stride = call.a.row_stride * element;
  product.a = At(call.a.data, offsets.a * element);
  product.a_in_place = call.a.col_stride == 1 && ReadsInPlace(product.a_stride, call.n);
  product.b_packed = call.b_packed;
  product.b = static_cast<const char*>(call.b.data);
  product.input = call.input;
  product.output = call.output;
  product.c_stride = call.c_row_stride != 0 ? call.c_row_stride : call.n;
  if (call.c != nullptr) product.c = static_cast<char*>(call.c) + offsets.c * BytesOf(call.output);
  product.accumulate = call.accumulate;
  product.epilogue = call.epilogue;
  product.member = member;
  return RunTiles(state, product, duty, dealt);
}

absl::Status Run(const Product& product, KernelSet&, KernelSet::State& state, const Duty& duty) {
  const GemmCall& call = product.call;
  const int64_t members = Members(call);
  const int threads = duty.pool != nullptr ? duty.pool->threads() : duty.threads;
  const double work = 2.0 * static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k + 8);
  const bool dealt = members > 1 && (members >= 2 * threads || work < kDealtWork);
  if (duty.pool == nullptr) return RunMember(state, call, 0, duty, dealt);
  if (!dealt || work * static_cast<double>(members) < kDealtWork) {
    for (int64_t i = 0; i < members; ++i) WEFT_RETURN_IF_ERROR(RunMember(state, call, i, duty, dealt));
    return absl::OkStatus();
  }
  Mutex mutex;  // for `failure`
  absl::Status failure;
  duty.pool->ParallelRanges(members, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      absl::Status status = RunMember(state, call, i, duty, dealt);
      if (status.ok()) continue;
      MutexLock lock(mutex);
      failure = std::move(status);
      return;
    }
  });
  return failure;
}

const char* Refuses(const Product& product) {
  return product.amx ? nullptr : "the target has no AMX tiles for the types";
}

int64_t PackedBytes(const Product& product) {
  return TilePackedBytes(product.call.k, product.call.n, BytesOf(product.call.input));
}
// AMX's tiles and the dot products of AVX-512 both take pairs or fours, laid out each in their own way.
std::vector<int64_t> PackedForm(const Product& product) {
  constexpr int64_t kTileForm = -1;
  const GemmCall& call = product.call;
  return {kTileForm, call.k, call.n, call.b.row_stride, call.b.col_stride};
}
void PackB(const Product& product, void* packed, ThreadPool& pool) {
  const GemmCall& call = product.call;
  const Matrices operands(product.target, call, nullptr, static_cast<const char*>(call.b.data));
  const int64_t bytes = TilePackedBytes(call.k, kTileSide, BytesOf(call.input));
  pool.ParallelRanges(CeilDiv(call.n, kTileSide), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      operands.PackB(t * kTileSide, std::min(kTileSide, call.n - t * kTileSide), 0, call.k,
                     static_cast<char*>(packed) + t * bytes);
    }
  });
}

}  // namespace

constinit const ProductImplementation kProductAmx = {"gemm amx", Refuses, Run, PackedBytes, PackedForm, PackB};

}  // namespace weft::cpu
