// Products of very long K: C would take an addition for each block of K, and sums of alike numbers would drift. So stretches of K
// are products by themselves, whose results are added in pairs.
#include <algorithm>

#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/backends/cpu/kernels/product/product.h"
#include "src/backends/cpu/kernels/tiles/pairwise.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// 32 to 74 blocks of K; C is passed over three times more for each, a hundredth of the work and less.
constexpr int64_t kStretch = 32768;

class LongProduct {
 public:
  explicit LongProduct(const GemmCall& call)
      : call_(call),
        sums_(ComputeType(call.output)),
        size_(Members(call) * call.m * call.n),
        bytes_(BytesOf(sums_)),
        narrow_(sums_ != call.output),
        stretches_(CeilDiv(call.k, kStretch)) {}

  // The product over stretch `index` of K, whose sums go to `to`. The last stretch may be shorter.
  GemmCall Stretch(int64_t index, void* to) const {
    GemmCall part = call_;
    const int64_t k = index * kStretch, source = BytesOf(call_.input);
    part.epilogue = {};
    part.output = sums_;
    part.k = std::min(kStretch, call_.k - k);
    if (part.a.data != nullptr) part.a.data = static_cast<const char*>(part.a.data) + k * part.a.col_stride * source;
    if (part.b.data != nullptr) part.b.data = static_cast<const char*>(part.b.data) + k * part.b.row_stride * source;
    if (to == nullptr) return part;  // C itself
    part.accumulate = false;
    part.c = to;
    part.c_row_stride = call_.n;
    int64_t stride = call_.m * call_.n;
    for (int d = call_.batch_rank - 1; d >= 0; --d) {
      part.c_batch_strides[static_cast<size_t>(d)] = stride;
      stride *= call_.batch_sizes[static_cast<size_t>(d)];
    }
    return part;
  }

  int64_t ScratchBytes() const { return (PairwiseBuffers(stretches_) - (narrow_ ? 0 : 1)) * size_ * bytes_; }

  absl::Status Run(KernelSet& kernels, ThreadPool& pool) {
    char* const space = static_cast<char*>(ThreadScratch(ScratchSlot::kSums, ScratchBytes()));
    if (space == nullptr) return OutOfScratch("a matrix product's partial sums", ScratchBytes());
    const auto at = [&](int64_t buffer) -> char* {
      if (!narrow_) --buffer;
      return buffer < 0 ? nullptr : space + buffer * size_ * bytes_;
    };
    absl::Status status;
    SumPairwise(
        stretches_,
        [&](int64_t index, int64_t buffer) {
          if (status.ok() && !LaunchEnds()) status = kernels.Gemm(Stretch(index, at(buffer)), pool);
        },
        [&](int64_t to, int64_t from) {
          EachRow(pool, [&](int64_t member, int64_t row, char* c) {
            const int64_t dense = (member * call_.m + row) * call_.n * bytes_;
            AddRow(at(to) != nullptr ? at(to) + dense : c, at(from) + dense);
          });
        });
    if (status.ok()) Finish(pool, space);
    return status;
  }

 private:
  void AddRow(char* to, const char* from) const {
    const auto add = [this](auto* sum, const auto* part) {
      for (int64_t j = 0; j < call_.n; ++j) sum[j] += part[j];
    };
    if (bytes_ == 8) return add(reinterpret_cast<double*>(to), reinterpret_cast<const double*>(from));
    add(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from));
  }

  int64_t RowStride() const { return call_.c_row_stride != 0 ? call_.c_row_stride : call_.n; }

  // fn(member, row, where C has the row)
  template <typename Fn>
  void EachRow(ThreadPool& pool, Fn fn) const {
    const int64_t element = BytesOf(call_.output);
    pool.ParallelRanges(Members(call_) * call_.m, [&](int64_t begin, int64_t end, int) {
      PieceLook look(static_cast<double>(call_.n * bytes_));
      for (int64_t i = begin; i < end && !look.Ends(); ++i) {
        const int64_t member = i / call_.m, row = i % call_.m;
        fn(member, row, static_cast<char*>(call_.c) + (OffsetsOf(call_, member).c + row * RowStride()) * element);
      }
    });
  }

  void Finish(ThreadPool& pool, const char* sums) const {
    const Epilogue& epilogue = call_.epilogue;
    EachRow(pool, [&](int64_t member, int64_t row, char* c) {
      if (narrow_) {
        const auto* from = reinterpret_cast<const float*>(sums) + (member * call_.m + row) * call_.n;
        Narrow(call_.output, from, call_.n, c, call_.n, 1, call_.n);
      }
      if (epilogue.consume != nullptr) {
        epilogue.consume(epilogue.context, call_.c, row, 1, 0, call_.n);
      } else if (epilogue.run != nullptr) {
        epilogue.run(epilogue.context, member, row, 1, 0, call_.n / epilogue.parts);
      }
    });
  }

  const GemmCall& call_;
  const DType sums_;
  const int64_t size_, bytes_;
  const bool narrow_;
  const int64_t stretches_;
};

bool IsLong(const GemmCall& call) { return call.k > kStretch && IsFloat(call.output) && !call.b_packed; }

const char* Refuses(const Product& product) { return IsLong(product.call) ? nullptr : "K is not long"; }
const char* RefusesAmx(const Product& product) {
  return product.amx ? Refuses(product) : "the target has no AMX tiles for the types";
}

absl::Status Run(const Product& product, KernelSet& kernels, KernelSet::State&, const Duty& duty) {
  const GemmCall& call = product.call;
  LongProduct sums(call);
  if (duty.pool != nullptr) return sums.Run(kernels, *duty.pool);
  duty.needs->Once(ScratchSlot::kSums, sums.ScratchBytes());
  // The last one is shorter.
  for (const int64_t index : {int64_t{0}, CeilDiv(call.k, kStretch) - 1}) {
    WEFT_RETURN_IF_ERROR(kernels.PrepareGemm(sums.Stretch(index, nullptr), duty.threads, *duty.needs));
  }
  return absl::OkStatus();
}

}  // namespace

// Its stretches are products by themselves, on AMX's tiles or others.
constinit const ProductImplementation kProductLongAmx = {"gemm long amx", RefusesAmx, Run};
constinit const ProductImplementation kProductLong = {"gemm long", Refuses, Run};

}  // namespace weft::cpu
