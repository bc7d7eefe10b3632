// Products, convolutions and pooling on the launch list.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "src/backends/cpu/launch/host_kernels.h"
#include "src/runtime/alloc_hook.h"

namespace weft::cpu {
namespace {

class Decoder {
 public:
  explicit Decoder(std::span<const int64_t> params) : params_(params) {}
  // Missing integers read as 0: KernelSet's own checks then refuse the call.
  int64_t Next() { return at_ < params_.size() ? params_[at_++] : 0; }
  template <typename T>
  void To(T& field) {
    field = static_cast<T>(Next());
  }
  bool exact() const { return at_ == params_.size(); }

 private:
  std::span<const int64_t> params_;
  size_t at_ = 0;
};

}  // namespace

GemmCall DecodeGemm(std::span<const int64_t> params) {
  Decoder d(params);
  GemmCall c;
  d.To(c.input);
  d.To(c.output);
  d.To(c.m);
  d.To(c.n);
  d.To(c.k);
  d.To(c.batch_rank);
  for (int64_t& v : c.batch_sizes) d.To(v);
  for (MatrixView* view : {&c.a, &c.b}) {
    d.To(view->row_stride);
    d.To(view->col_stride);
    for (int64_t& v : view->batch_strides) d.To(v);
  }
  d.To(c.c_row_stride);
  for (int64_t& v : c.c_batch_strides) d.To(v);
  d.To(c.b_packed);
  return c;
}

namespace {

void DecodeDims(Decoder& d, std::array<SpatialDim, kMaxSpatialDims>& dims) {
  for (SpatialDim& s : dims) {
    d.To(s.in);
    d.To(s.window);
    d.To(s.out);
    d.To(s.stride);
    d.To(s.pad_lo);
    d.To(s.pad_hi);
    d.To(s.lhs_dilation);
    d.To(s.rhs_dilation);
    d.To(s.reversed);
  }
}
void EncodeDims(const std::array<SpatialDim, kMaxSpatialDims>& dims, std::vector<int64_t>& out) {
  for (const SpatialDim& s : dims) {
    out.insert(out.end(),
               {s.in, s.window, s.out, s.stride, s.pad_lo, s.pad_hi, s.lhs_dilation, s.rhs_dilation, s.reversed});
  }
}

struct EncodedConv {
  ConvCall call;
  LoopEnding ending;  // if `call` has one
};
EncodedConv DecodeConvAndEnding(std::span<const int64_t> params) {
  Decoder d(params);
  EncodedConv conv;
  ConvCall& c = conv.call;
  d.To(c.input);
  d.To(c.output);
  d.To(c.batch);
  d.To(c.in_channels);
  d.To(c.out_channels);
  d.To(c.feature_groups);
  d.To(c.batch_groups);
  d.To(c.spatial_rank);
  DecodeDims(d, c.dims);
  d.To(c.winograd);
  d.To(c.w_out_first);
  d.To(c.columns);
  d.To(c.ending.kind);
  LoopEnding& e = conv.ending;
  for (int32_t* buffer : {&e.factor, &e.summand, &e.to, &e.added}) d.To(*buffer);
  for (float* bound : {&c.ending.least, &c.ending.most}) *bound = std::bit_cast<float>(static_cast<uint32_t>(d.Next()));
  return conv;
}
ConvCall DecodeConv(std::span<const int64_t> params) {
  ConvCall c = DecodeConvAndEnding(params).call;
  c.ending = {};
  return c;
}

PoolCall DecodePool(std::span<const int64_t> params) {
  Decoder d(params);
  PoolCall c;
  d.To(c.kind);
  d.To(c.dtype);
  d.To(c.batch);
  d.To(c.channels);
  d.To(c.spatial_rank);
  DecodeDims(d, c.dims);
  c.scale = std::bit_cast<double>(d.Next());
  d.To(c.nan_gives_way);
  return c;
}

Epilogue EpilogueOf(const BlockLoop* loop, bool gemm = false) {
  if (loop == nullptr) return {};
  if (gemm && loop->product >= 0) {
    return {nullptr, const_cast<BlockLoop*>(loop),
            [](void* loop, const void* c, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
              static_cast<const BlockLoop*>(loop)->Run(row0, rows, col0, cols, c);
            }};
  }
  return {[](void* loop, int64_t, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
            static_cast<const BlockLoop*>(loop)->Run(row0, rows, col0, cols);
          },
          const_cast<BlockLoop*>(loop)};
}

// Where the call's operands lie, and its epilogue.
void Bind(const HostCall& call, size_t first, GemmCall& c) {
  c.a.data = call.buffers[first];
  c.b.data = call.buffers[first + 1];
  c.c = call.buffers[first + 2];
}
// Returns how many equal parts of the n columns an epilogue reads together.
int64_t PartsOf(const BlockLoop& epilogue, int64_t n) {
  const int64_t columns = epilogue.columns();
  return columns > 0 ? std::max<int64_t>(1, n / columns) : 1;
}
void AddEpilogue(const HostCall& call, GemmCall& c) {
  c.epilogue = EpilogueOf(call.epilogue, true);
  if (c.epilogue.run != nullptr) c.epilogue.parts = PartsOf(*call.epilogue, c.n);
}

// A product planned for operands as they lie, and for B as HostKernel::pack writes it.
struct GemmPlans {
  int64_t n = 0;
  std::shared_ptr<const PlannedGemm> plain, packed;
};

// Buffers: a, b, c.
absl::Status RunGemm(const HostCall& call) {
  const auto* const plans = static_cast<const GemmPlans*>(call.plan);
  // An epilogue of several parts depends on the pool.
  if (plans != nullptr && (call.epilogue == nullptr || PartsOf(*call.epilogue, plans->n) == 1)) {
    const bool packed = call.packed != nullptr;
    const PlannedGemm* const planned = (packed ? plans->packed : plans->plain).get();
    const GemmPlaces places = {call.buffers[0], packed ? call.packed : call.buffers[1], call.buffers[2],
                               EpilogueOf(call.epilogue, true)};
    if (planned != nullptr) return call.kernels.Gemm(*planned, places, call.pool);
  }
  GemmCall c = DecodeGemm(call.params);
  Bind(call, 0, c);
  AddEpilogue(call, c);
  if (call.packed != nullptr) {
    c.b.data = call.packed;
    c.b_packed = true;
  }
  return call.kernels.Gemm(c, call.pool);
}

// Two products, one after the other in params and buffers.
std::pair<GemmCall, GemmCall> DecodePair(std::span<const int64_t> params) {
  return {DecodeGemm(params.first(params.size() / 2)), DecodeGemm(params.subspan(params.size() / 2))};
}
absl::Status RunGemmPair(const HostCall& call) {
  auto [first, second] = DecodePair(call.params);
  Bind(call, 0, first);
  Bind(call, 3, second);
  AddEpilogue(call, second);
  return call.kernels.GemmPair(first, second, call.pool);
}
absl::Status PrepareGemmPair(const HostPreparation& call) {
  auto [first, second] = DecodePair(call.params);
  second.epilogue = EpilogueOf(call.epilogue, true);
  WEFT_RETURN_IF_ERROR(call.kernels.PrepareGemm(first, call.threads, call.needs));
  return call.kernels.PrepareGemm(second, call.threads, call.needs);
}
// Buffers: b, then of each product a, what it is added to, and where the sums go.
std::vector<SumCall> DecodeSums(std::span<const int64_t> params, size_t count) {
  std::vector<SumCall> calls(count);
  const size_t each = params.size() / count;
  for (size_t i = 0; i < count; ++i) calls[i].product = DecodeGemm(params.subspan(i * each, each));
  return calls;
}
absl::Status RunGemmSums(const HostCall& call) {
  std::vector<SumCall> calls = DecodeSums(call.params.subspan(1), static_cast<size_t>(call.params[0]));
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].product.a.data = call.buffers[1 + 3 * i];
    calls[i].product.b.data = call.buffers[0];
    calls[i].before = call.buffers[2 + 3 * i];
    calls[i].product.c = call.buffers[3 + 3 * i];
  }
  return call.kernels.AddSums(calls, call.pool);
}
absl::Status PrepareGemmSums(const HostPreparation& call) {
  if (call.params.empty() || call.params[0] < 1 || call.params[0] > static_cast<int64_t>(call.params.size())) {
    return absl::DataLossError("compiled program is damaged: sums of products without their number");
  }
  const std::vector<SumCall> calls = DecodeSums(call.params.subspan(1), static_cast<size_t>(call.params[0]));
  return call.kernels.PrepareSums(calls, call.needs);
}

// With more rows packing is a hundredth of the product and less.
constexpr int64_t kMostRowsThatKeep = 4096;
PackedOperand PacksOfGemm(std::span<const int64_t> params, const CpuTarget& target) {
  const GemmCall c = DecodeGemm(params);
  if (c.m > kMostRowsThatKeep || c.b_packed) return {};
  const int64_t bytes = PackedBytesOfB(target, c);
  if (bytes == 0) return {};
  return {1, bytes, PackedFormOfB(target, c), UnpackableB(target, c)};
}
void UnpackGemm(std::span<const int64_t> params, const CpuTarget& target, const void* packed, int64_t first,
                std::span<std::byte> to) {
  const GemmCall c = DecodeGemm(params);
  const int64_t element = BytesOf(c.input);
  UnpackB(target, c, packed, first / element, static_cast<int64_t>(to.size()) / element, to.data());
}
absl::Status PackGemm(const HostCall& call, void* to) {
  GemmCall c = DecodeGemm(call.params);
  c.b.data = call.buffers[1];
  return call.kernels.PackB(c, to, call.pool);
}
absl::Status PrepareGemm(const HostPreparation& call) {
  GemmCall c = DecodeGemm(call.params);
  c.epilogue = EpilogueOf(call.epilogue, true);
  return call.kernels.PrepareGemm(c, call.threads, call.needs);
}

std::shared_ptr<const void> PlanGemm(const HostPreparation& call) {
  GemmCall c = DecodeGemm(call.params);
  c.epilogue = EpilogueOf(call.epilogue, true);
  auto plans = std::make_shared<GemmPlans>();
  plans->n = c.n;
  const auto plan = [&](std::shared_ptr<const PlannedGemm>* to) {
    absl::StatusOr<std::shared_ptr<const PlannedGemm>> planned = call.kernels.PlanGemm(c);
    if (planned.ok()) *to = *std::move(planned);  // else the run says why
  };
  plan(&plans->plain);
  if (PacksOfGemm(call.params, call.kernels.target()).buffer >= 0) {
    c.b_packed = true;
    plan(&plans->packed);
  }
  return plans;
}

// Buffers: b, and where it goes.
absl::Status RunPackB(const HostCall& call) {
  GemmCall c = DecodeGemm(call.params);
  c.b.data = call.buffers[0];
  return call.kernels.PackB(c, call.buffers[1], call.pool);
}

// Tells whether tiles may do the epilogue: nobody else reads the product.
bool EndsIn(const BlockLoop* epilogue) { return epilogue != nullptr && epilogue->product >= 0; }

// Buffers: the two that are read, then the written one.
absl::Status RunConv(const HostCall& call) {
  auto [c, ending] = DecodeConvAndEnding(call.params);
  if (!EndsIn(call.epilogue)) c.ending = {};
  if (c.ending.kind != EndingKind::kNone) {
    const auto buffer = [&](int32_t at) -> void* {
      const bool there = at >= 0 && static_cast<size_t>(at) < call.epilogue->buffer_count;
      return there ? call.epilogue->buffers[at] : nullptr;
    };
    c.ending.factor = static_cast<const float*>(buffer(ending.factor));
    c.ending.summand = static_cast<const float*>(buffer(ending.summand));
    c.ending.added = buffer(ending.added);
    c.ending.to = buffer(ending.to);
  }
  c.x = call.buffers[0];
  c.w = call.packed != nullptr ? call.packed : call.buffers[1];
  c.w_packed = call.packed != nullptr;
  if (c.w_packed) c.w_plain = call.buffers[1];
  c.y = call.buffers[2];
  c.epilogue = EpilogueOf(call.epilogue);
  return call.kernels.Conv(c, call.pool);
}
// Packing takes at most a hundredth of a convolution of more pixels. Tiles compute eight times as fast.
constexpr int64_t kMostPixelsThatKeep = 4096, kMostPixelsOnTiles = 8 * kMostPixelsThatKeep;
PackedOperand PacksOfConv(std::span<const int64_t> params, const CpuTarget& target) {
  const ConvCall c = DecodeConv(params);
  const int64_t bytes = PackedBytesOfW(target, c);
  if (bytes == 0) return {};
  int64_t pixels = c.batch;
  for (int d = 0; d < c.spatial_rank; ++d) pixels *= c.dims[d].out;
  const bool tiles = target.tiles != TileUnit::kNone && c.input == DType::kBF16;
  if (pixels > (tiles ? kMostPixelsOnTiles : kMostPixelsThatKeep)) return {};
  return {1, bytes, PackedFormOfW(target, c), UnpackableW(target, c)};
}
void UnpackConv(std::span<const int64_t> params, const CpuTarget& target, const void* packed, int64_t first,
                std::span<std::byte> to) {
  const ConvCall c = DecodeConv(params);
  const int64_t all = UnpackableW(target, c) * BytesOf(c.input);
  if (first == 0 && static_cast<int64_t>(to.size()) == all) return UnpackW(target, c, packed, to.data());
  std::vector<std::byte, LargeStdAllocator<std::byte>> whole(static_cast<size_t>(all));
  UnpackW(target, c, packed, whole.data());
  std::memcpy(to.data(), whole.data() + first, to.size());
}
absl::Status PackConv(const HostCall& call, void* to) {
  ConvCall c = DecodeConv(call.params);
  c.w = call.buffers[1];
  return call.kernels.PackW(c, to, call.pool);
}
absl::Status RunConvBackwardData(const HostCall& call) {  // y, w -> x
  ConvCall c = DecodeConv(call.params);
  c.y = call.buffers[0];
  c.w = call.buffers[1];
  c.x = call.buffers[2];
  c.epilogue = EpilogueOf(call.epilogue);
  return call.kernels.ConvBackwardData(c, call.pool);
}
absl::Status RunConvBackwardWeights(const HostCall& call) {  // x, y -> w
  ConvCall c = DecodeConv(call.params);
  c.x = call.buffers[0];
  c.y = call.buffers[1];
  c.w = call.buffers[2];
  c.epilogue = EpilogueOf(call.epilogue);
  return call.kernels.ConvBackwardWeights(c, call.pool);
}
absl::Status PrepareConv(const HostPreparation& call) {
  ConvCall c = DecodeConvAndEnding(call.params).call;
  if (!EndsIn(call.epilogue)) c.ending = {};
  return call.kernels.PrepareConv(c, call.threads, call.needs);
}
absl::Status PrepareConvBackwardData(const HostPreparation& call) {
  return call.kernels.PrepareConvBackwardData(DecodeConv(call.params), call.threads, call.needs);
}
absl::Status PrepareConvBackwardWeights(const HostPreparation& call) {
  return call.kernels.PrepareConvBackwardWeights(DecodeConv(call.params), call.threads, call.needs);
}

absl::Status RunPool(const HostCall& call) {  // x -> y
  PoolCall c = DecodePool(call.params);
  c.x = call.buffers[0];
  c.y = call.buffers[1];
  return call.kernels.Pool(c, call.pool);
}
absl::Status RunPoolBackward(const HostCall& call) {  // x, dy -> dx
  PoolBackwardCall c;
  c.pool = DecodePool(call.params);
  c.pool.x = call.buffers[0];
  c.dy = call.buffers[1];
  c.dx = call.buffers[2];
  return call.kernels.PoolBackward(c, call.pool);
}

absl::Status PreparePool(const HostPreparation& call) {
  return call.kernels.PreparePool(DecodePool(call.params), false, call.needs);
}
absl::Status PreparePoolBackward(const HostPreparation& call) {
  return call.kernels.PreparePool(DecodePool(call.params), true, call.needs);
}

// A multiplication and an addition for each factor of each sum.
int64_t FlopsOf(const GemmCall& c) {
  double flops = 2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
  for (int d = 0; d < c.batch_rank; ++d) flops *= static_cast<double>(c.batch_sizes[d]);
  return flops < 0x1p62 ? static_cast<int64_t>(flops) : int64_t{1} << 62;
}
int64_t FlopsOfGemm(std::span<const int64_t> params) { return FlopsOf(DecodeGemm(params)); }
int64_t FlopsOfPair(std::span<const int64_t> params) {
  const auto [first, second] = DecodePair(params);
  return std::min(FlopsOf(first), int64_t{1} << 61) + std::min(FlopsOf(second), int64_t{1} << 61);
}
int64_t FlopsOfSums(std::span<const int64_t> params) {
  double flops = 0;
  for (const SumCall& call : DecodeSums(params.subspan(1), static_cast<size_t>(params[0]))) {
    flops += static_cast<double>(FlopsOf(call.product));
  }
  return flops < 0x1p62 ? static_cast<int64_t>(flops) : int64_t{1} << 62;
}
// The count serves the convolution and both its gradients. It includes taps that fall into the padding.
int64_t FlopsOfConv(std::span<const int64_t> params) {
  const ConvCall c = DecodeConv(params);
  double flops = 2.0 * static_cast<double>(c.batch) * static_cast<double>(c.out_channels) *
                 static_cast<double>(c.in_channels) / static_cast<double>(std::max<int64_t>(c.feature_groups, 1)) /
                 static_cast<double>(std::max<int64_t>(c.batch_groups, 1));
  for (int d = 0; d < c.spatial_rank; ++d) {
    flops *= static_cast<double>(c.dims[d].out) * static_cast<double>(c.dims[d].window);
  }
  return flops < 0x1p62 ? static_cast<int64_t>(flops) : int64_t{1} << 62;
}
// The calls of sums begin with their number.
DType InputOfGemm(std::span<const int64_t> params) { return DecodeGemm(params).input; }
DType InputOfSums(std::span<const int64_t> params) { return DecodeGemm(params.subspan(1)).input; }
DType InputOfConv(std::span<const int64_t> params) { return DecodeConv(params).input; }

constexpr HostKernel kKernels[] = {
    {.name = "gemm",
     .run = RunGemm,
     .prepare = PrepareGemm,
     .plan = PlanGemm,
     .packs = PacksOfGemm,
     .pack = PackGemm,
     .unpack = UnpackGemm,
     .unpacks_pieces = true,
     .flops = FlopsOfGemm,
     .input = InputOfGemm},
    {.name = "gemm_pair", .run = RunGemmPair, .prepare = PrepareGemmPair, .flops = FlopsOfPair, .input = InputOfGemm},
    {.name = "gemm_sums", .run = RunGemmSums, .prepare = PrepareGemmSums, .flops = FlopsOfSums, .input = InputOfSums},
    {"pack_b", RunPackB},
    {.name = "conv",
     .run = RunConv,
     .prepare = PrepareConv,
     .packs = PacksOfConv,
     .pack = PackConv,
     .unpack = UnpackConv,
     .flops = FlopsOfConv,
     .input = InputOfConv},
    {.name = "conv_backward_data",
     .run = RunConvBackwardData,
     .prepare = PrepareConvBackwardData,
     .flops = FlopsOfConv,
     .input = InputOfConv},
    {.name = "conv_backward_weights",
     .run = RunConvBackwardWeights,
     .prepare = PrepareConvBackwardWeights,
     .flops = FlopsOfConv,
     .input = InputOfConv},
    {"pool", RunPool, PreparePool},
    {"pool_backward", RunPoolBackward, PreparePoolBackward},
};

}  // namespace

std::span<const HostKernel> ProductHostKernels() { return kKernels; }

std::vector<int64_t> EncodeGemm(const GemmCall& c) {
  std::vector<int64_t> out = {
      static_cast<int64_t>(c.input), static_cast<int64_t>(c.output), c.m, c.n, c.k, c.batch_rank};
  out.insert(out.end(), c.batch_sizes.begin(), c.batch_sizes.end());
  for (const MatrixView* view : {&c.a, &c.b}) {
    out.push_back(view->row_stride);
    out.push_back(view->col_stride);
    out.insert(out.end(), view->batch_strides.begin(), view->batch_strides.end());
  }
  out.push_back(c.c_row_stride);
  out.insert(out.end(), c.c_batch_strides.begin(), c.c_batch_strides.end());
  out.push_back(static_cast<int64_t>(c.b_packed));
  return out;
}

std::vector<int64_t> EncodeConv(const ConvCall& c) {
  std::vector<int64_t> out = {static_cast<int64_t>(c.input),
                              static_cast<int64_t>(c.output),
                              c.batch,
                              c.in_channels,
                              c.out_channels,
                              c.feature_groups,
                              c.batch_groups,
                              c.spatial_rank};
  EncodeDims(c.dims, out);
  out.push_back(static_cast<int64_t>(c.winograd));
  out.push_back(static_cast<int64_t>(c.w_out_first));
  out.push_back(static_cast<int64_t>(c.columns));
  return out;
}

void AppendEnding(const LoopEnding& ending, std::vector<int64_t>* params) {
  const EndingKind kind = ending.added >= 0 ? EndingKind::kAffineAdd : EndingKind::kAffine;
  params->insert(params->end(), {static_cast<int64_t>(kind), ending.factor, ending.summand, ending.to, ending.added,
                                 std::bit_cast<uint32_t>(ending.least), std::bit_cast<uint32_t>(ending.most)});
}

std::vector<int64_t> EncodePool(const PoolCall& c) {
  std::vector<int64_t> out = {static_cast<int64_t>(c.kind), static_cast<int64_t>(c.dtype), c.batch, c.channels,
                              c.spatial_rank};
  EncodeDims(c.dims, out);
  out.push_back(std::bit_cast<int64_t>(c.scale));
  out.push_back(c.nan_gives_way);
  return out;
}

const HostKernel* FindHostKernel(std::string_view name) {
  static constexpr std::span<const HostKernel> (*kLists[])() = {
#define WEFT_CPU_RULES(name)
#define WEFT_CPU_KERNELS(name) name##HostKernels,
#define WEFT_CPU_BOTH(name) WEFT_CPU_KERNELS(name)
#include "src/backends/cpu/launch/operations.list"
#undef WEFT_CPU_RULES
#undef WEFT_CPU_KERNELS
#undef WEFT_CPU_BOTH
  };
  for (const auto list : kLists) {
    for (const HostKernel& kernel : list()) {
      if (kernel.name == name) return &kernel;
    }
  }
  return nullptr;
}

}  // namespace weft::cpu
