// Matrix products: checks, then the first implementation of products.list that takes the call.
#include <cstring>
#include <memory>
#include <utility>

#include "src/backends/cpu/kernels/chosen.h"
#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/backends/cpu/kernels/product/product.h"
#include "src/backends/cpu/kernels/tiles/implementation.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr const ProductImplementation* kProducts[] = {
#define WEFT_PRODUCT(name) &kProduct##name,
#include "src/backends/cpu/kernels/product/products.list"
#undef WEFT_PRODUCT
};

absl::Status Check(const GemmCall& call) {
  if (call.m < 0 || call.n < 0 || call.k < 0) {
    return UserError("matrix product with negative sizes ", call.m, " x ", call.k, " x ", call.n);
  }
  if (call.batch_rank < 0 || call.batch_rank > kMaxBatchDims) {
    return UserError("matrix product with ", call.batch_rank, " batch dimensions; at most ", kMaxBatchDims);
  }
  if (call.epilogue.consume != nullptr && Members(call) != 1) return UserError("consuming a batch of matrix products");
  const Epilogue& epilogue = call.epilogue;
  if (epilogue.parts != 1 && (epilogue.parts < 1 || epilogue.run == nullptr || epilogue.consume != nullptr ||
                              Members(call) != 1 || call.n % epilogue.parts != 0)) {
    return UserError("an epilogue of ", epilogue.parts, " parts of ", call.n, " columns");
  }
  if (call.accumulate && call.output != DType::kF32 && call.output != DType::kF64) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "accumulating into ", NameOf(call.output),
                       " is not supported; f32 and f64 are");
  }
  return absl::OkStatus();
}

// k = 0: a sum of nothing.
void WriteZeros(const GemmCall& call) {
  const int64_t stride = call.c_row_stride != 0 ? call.c_row_stride : call.n;
  const int64_t bytes = BytesOf(call.output);
  for (int64_t index = 0; index < Members(call); ++index) {
    char* c = static_cast<char*>(call.c) + OffsetsOf(call, index).c * bytes;
    for (int64_t row = 0; row < call.m && !call.accumulate; ++row)
      std::memset(c + row * stride * bytes, 0, call.n * bytes);
    if (call.epilogue.consume != nullptr) {
      call.epilogue.consume(call.epilogue.context, call.c, 0, call.m, 0, call.n);
    } else if (call.epilogue.run != nullptr) {
      call.epilogue.run(call.epilogue.context, index, 0, call.m, 0, call.n);
    }
  }
}

// A batch whose members lie behind each other in A and C and share B is one taller product.
GemmCall FoldBatch(const GemmCall& call) {
  const int64_t c_stride = call.c_row_stride != 0 ? call.c_row_stride : call.n;
  if (call.batch_rank != 1 || call.epilogue.run != nullptr || call.epilogue.consume != nullptr ||
      call.b.batch_strides[0] != 0)
    return call;
  if (call.a.batch_strides[0] != call.m * call.a.row_stride || call.c_batch_strides[0] != call.m * c_stride)
    return call;
  GemmCall folded = call;
  folded.m *= call.batch_sizes[0];
  folded.batch_rank = 0;
  return folded;
}

bool IsEmpty(const GemmCall& call) { return call.m == 0 || call.n == 0 || Members(call) == 0; }

// Tells whether the driver deals out columns of C, the same of each of so many parts.
bool RunsParts(const CpuTarget& target, const GemmCall& call, int64_t parts, int threads) {
  return call.k > 0 && DealsParts(Product(target, call), parts, threads);
}
absl::Status RunThenParts(KernelSet& kernels, const GemmCall& call, ThreadPool& pool) {
  const Epilogue& epilogue = call.epilogue;
  GemmCall product = call;
  product.epilogue = {};
  WEFT_RETURN_IF_ERROR(kernels.Gemm(product, pool));
  pool.ParallelRanges(call.m, [&](int64_t begin, int64_t end, int) {
    epilogue.run(epilogue.context, 0, begin, end - begin, 0, call.n / epilogue.parts);
  });
  return absl::OkStatus();
}

}  // namespace

Product::Product(const CpuTarget& target, const GemmCall& call)
    : target(target),
      call(call),
      amx(AmxServes(target, call.input, call.output)),
      registers(PlanTypes(target, call.input, call.output, &types)) {}

const ProductImplementation& ChooseProduct(const Product& product) { return FirstThatTakes(kProducts, product); }

// A call whose implementation is chosen, and its plan made if register tiles compute it.
class PlannedGemm {
 public:
  PlannedGemm(const CpuTarget& target, const GemmCall& call)
      : call_(FoldBatch(call)), product_(target, call_), chosen_(ChooseProduct(product_)) {}
  PlannedGemm(const PlannedGemm&) = delete;
  PlannedGemm& operator=(const PlannedGemm&) = delete;

  const GemmCall& call() const { return call_; }
  const Product& product() const { return product_; }
  const ProductImplementation& chosen() const { return chosen_; }
  bool tiles() const { return &chosen_ == &kProductTiles || &chosen_ == &kProductTilesVnni; }
  GemmPlan plan;  // where there are tiles

 private:
  const GemmCall call_;
  const Product product_;
  const ProductImplementation& chosen_;
};

absl::Status KernelSet::Gemm(const GemmCall& original, ThreadPool& pool) {
  WEFT_RETURN_IF_ERROR(Check(original));
  const GemmCall call = FoldBatch(original);
  const int64_t parts = call.epilogue.parts;
  if (parts > 1 && !RunsParts(target(), call, parts, pool.threads())) return RunThenParts(*this, call, pool);
  if (IsEmpty(call)) return absl::OkStatus();
  if (call.k == 0) {
    WriteZeros(call);
    return absl::OkStatus();
  }
  const Product product(target(), call);
  return ChooseProduct(product).run(product, *this, *state_, {&pool});
}

absl::StatusOr<std::shared_ptr<const PlannedGemm>> KernelSet::PlanGemm(const GemmCall& call) {
  WEFT_RETURN_IF_ERROR(Check(call));
  // An epilogue of several parts depends on the pool.
  if (IsEmpty(call) || call.k == 0 || call.epilogue.parts > 1) return nullptr;
  auto planned = std::make_shared<PlannedGemm>(target(), call);
  if (planned->tiles()) {
    WEFT_RETURN_IF_ERROR(cpu::PlanGemm(*state_, planned->call(), planned->product().types, &planned->plan));
  }
  return planned;
}

absl::Status KernelSet::Gemm(const PlannedGemm& planned, const GemmPlaces& places, ThreadPool& pool) {
  GemmCall call = planned.call();
  call.a.data = places.a;
  call.b.data = places.b;
  call.c = places.c;
  call.epilogue = places.epilogue;
  const Product product(planned.product(), call, planned.tiles() ? &planned.plan : nullptr);
  return planned.chosen().run(product, *this, *state_, {&pool});
}

absl::Status KernelSet::GemmPair(const GemmCall& first, const GemmCall& second, ThreadPool& pool) {
  WEFT_RETURN_IF_ERROR(Check(first));
  WEFT_RETURN_IF_ERROR(Check(second));
  const int64_t parts = second.epilogue.parts;
  const bool alike =
      first.m == second.m && first.n == second.n && first.input == second.input && first.output == second.output;
  if (!alike || first.m == 0 || first.n == 0 || !RunsParts(target(), first, parts, pool.threads()) ||
      !RunsParts(target(), second, parts, pool.threads())) {
    WEFT_RETURN_IF_ERROR(Gemm(first, pool));
    return Gemm(second, pool);
  }
  return RunPair(Product(target(), first), Product(target(), second), *state_, pool);
}

int64_t PackedBytesOfB(const CpuTarget& target, const GemmCall& call) {
  if (call.batch_rank != 0 || call.m <= 0 || call.n <= 0 || call.k <= 0) return 0;
  const Product product(target, call);
  const ProductImplementation& chosen = ChooseProduct(product);
  return chosen.packed_bytes != nullptr ? chosen.packed_bytes(product) : 0;
}

std::vector<int64_t> PackedFormOfB(const CpuTarget& target, const GemmCall& call) {
  const Product product(target, call);
  const ProductImplementation& chosen = ChooseProduct(product);
  return chosen.packed_form != nullptr ? chosen.packed_form(product) : std::vector<int64_t>();
}

absl::Status KernelSet::PackB(const GemmCall& call, void* packed, ThreadPool& pool) const {
  if (PackedBytesOfB(target(), call) == 0) {
    return InternalError("packing an operand of a product that reads it in place");
  }
  const Product product(target(), call);
  ChooseProduct(product).pack(product, packed, pool);
  return absl::OkStatus();
}

absl::Status KernelSet::PrepareGemm(const GemmCall& original, int threads, ScratchNeeds& needs) {
  WEFT_RETURN_IF_ERROR(Check(original));
  const GemmCall call = FoldBatch(original);
  if (IsEmpty(call) || call.k == 0) return absl::OkStatus();
  const Product product(target(), call);
  const ProductImplementation& chosen = ChooseProduct(product);
  Chose(chosen.name);
  return chosen.run(product, *this, *state_, {nullptr, &needs, threads});
}

}  // namespace weft::cpu
