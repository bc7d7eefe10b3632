// The heavy kernels of the CPU backend as plain calls on memory: matrix products, NHWC convolutions with both
// backward passes, pooling. Knows nothing of graphs. Micro-kernels are generated for the host on first use and can be
// taken out and put back as bytes, so that a second process compiles nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/backends/cpu/jit/jit.h"
#include "src/backends/cpu/kernels/scratch.h"
#include "src/runtime/dtype.h"
#include "src/runtime/thread_pool.h"

namespace weft::cpu {

inline constexpr int kMaxBatchDims = 4;
inline constexpr int kMaxSpatialDims = 4;

// Called with finished blocks of C while they are in cache: rows [row0, row0 + rows) x columns [col0, col0 + cols) of
// batch member `batch`. Every element is covered exactly once. Called from any worker, several at a time, for disjoint
// blocks; must not open a parallel region that matters for speed (it would run inline).
struct Epilogue {
  void (*run)(void* context, int64_t batch, int64_t row0, int64_t rows, int64_t col0, int64_t cols) = nullptr;
  void* context = nullptr;
  // Instead of `run`, from an epilogue that is all there is to C: it gets where C would begin if the block lay in it
  // (rows `c_row_stride` apart), which may be space of the driver's. Then C holds nothing defined. Matrix products only.
  void (*consume)(void* context, const void* c, int64_t row0, int64_t rows, int64_t col0, int64_t cols) = nullptr;
  // More than 1: `run` reads the columns of so many equal parts of C together (an LSTM's gates), and is called with columns of
  // the first part when those of all are finished. Matrix products without a batch only.
  int64_t parts = 1;
};

// A register epilogue: a forward convolution's sums are, while they are in registers, rounded if y is bf16, times `factor`, plus
// `summand` of the column, rounded; plus what lies in `added`, rounded; bounded. A loop does the same, operation by
// operation, so that bits do not depend on who does it.
enum class EndingKind : uint8_t { kNone, kAffine, kAffineAdd };
struct Ending {
  EndingKind kind = EndingKind::kNone;
  const float* factor = nullptr;   // [out_channels]
  const float* summand = nullptr;  // [out_channels]
  const void* added = nullptr;     // of kAffineAdd: as y, likewise
  void* to = nullptr;              // as y, instead of it; it may be `added`, element by element
  // 0 or nothing, and something above 0 or nothing; values of the type of y.
  float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity();
};

// A matrix in memory: element (i, j) of batch member b is data[i * row_stride + j * col_stride + sum b_d * batch_stride_d].
// Strides count elements, may be 0 for a broadcast, and at least one of row and column stride is 1 on the fast path;
// any others work through packing.
struct MatrixView {
  const void* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  std::array<int64_t, kMaxBatchDims> batch_strides = {};
};

// C[m,n] = A[m,k] B[k,n], or C += A B. Types:
//   f32 -> f32, f64 -> f64, bf16 -> f32 or bf16 (always accumulated in f32), f16 likewise through f32,
//   integers and bool -> the same type (wrapping; bool is or-of-ands), i8, u8 and i16 -> i32.
// C has unit column stride and must not overlap A or B. k = 0 gives zeros. No alignment is required; 64 bytes is fastest.
// Bits depend on the shapes and the target, never on the number of threads.
struct GemmCall {
  DType input = DType::kF32;
  DType output = DType::kF32;
  int64_t m = 0, n = 0, k = 0;
  int batch_rank = 0;
  std::array<int64_t, kMaxBatchDims> batch_sizes = {};
  MatrixView a, b;
  void* c = nullptr;
  int64_t c_row_stride = 0;  // elements; 0 means n
  std::array<int64_t, kMaxBatchDims> c_batch_strides = {};
  bool accumulate = false;  // C += A B; f32 and f64 outputs only
  bool b_packed = false;    // B lies as KernelSet::PackB wrote it; its strides are those that it had before
  Epilogue epilogue;
};
// Where a planned product's operands lie, and its epilogue, of which there is one if the call that was planned had one.
struct GemmPlaces {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  Epilogue epilogue;
};
class PlannedGemm;
// `product.c` becomes what lies in `before` (rows as far apart as its own; it may be `product.c`) and the product's sums, each
// added at its end.
struct SumCall {
  GemmCall product;
  const void* before = nullptr;
};
// Tells whether KernelSet::AddSums takes a product: one of few steps of K, whose sums are the bits that KernelSet::Gemm gives.
bool AddsSums(const CpuTarget& target, const GemmCall& call);

// Bytes of B as this call packs it; 0 if it packs none: it reads B in place, or is a batch, or nothing that tiles serve.
int64_t PackedBytesOfB(const CpuTarget& target, const GemmCall& call);
// Says how such a call packs B. Calls for which it is equal find the same bytes at the same places.
std::vector<int64_t> PackedFormOfB(const CpuTarget& target, const GemmCall& call);
// Elements of B if they lie one after another, by rows or by columns, and UnpackB gives all of them back with their bits; else 0.
int64_t UnpackableB(const CpuTarget& target, const GemmCall& call);
// `count` elements from the `first` on, as B lay before PackB. On the calling thread.
void UnpackB(const CpuTarget& target, const GemmCall& call, const void* packed, int64_t first, int64_t count, void* to);

// One convolution seen from all three sides; `x`, `w`, `y` are the forward pass's input, kernel and output:
//   x [batch, in..., in_channels]   w [window..., in_channels / groups, out_channels]   y [batch, out..., out_channels]
// all contiguous. The geometry is StableHLO's: x is spread by lhs_dilation, padded (negative padding crops), the window
// spread by rhs_dilation and, where `reversed`, flipped; then moved by `stride`. Conv writes y, ConvBackwardData
// writes x (from y as the gradient), ConvBackwardWeights writes w.
struct SpatialDim {
  int64_t in = 1, window = 1, out = 1;
  int64_t stride = 1, pad_lo = 0, pad_hi = 0, lhs_dilation = 1, rhs_dilation = 1;
  bool reversed = false;
};
// Says whether 3x3 convolutions of f32 and their input gradients may be computed on transformed tiles (conv_winograd.h): fewer products,
// other bits.
enum class UseWinograd : uint8_t { kNever, kWhereFaster, kWhereItFits };
struct ConvCall {
  DType input = DType::kF32;   // of the two operands that are read
  DType output = DType::kF32;  // of the one that is written; f32 or bf16 for bf16 inputs
  int64_t batch = 1, in_channels = 1, out_channels = 1;
  int64_t feature_groups = 1;
  int64_t batch_groups = 1;  // StableHLO's batch_group_count: y has batch / batch_groups members; forward only
  int spatial_rank = 2;
  std::array<SpatialDim, kMaxSpatialDims> dims;
  const void* x = nullptr;
  const void* w = nullptr;
  bool w_packed = false;  // w lies as KernelSet::PackW wrote it; Conv only
  // Then, if it is there: as it lay before. A kernel that is not finite and was transformed is read from here.
  const void* w_plain = nullptr;
  // w is [out_channels, in_channels / feature_groups, taps], as PyTorch has it, in place of [taps, ..., out_channels]. Conv only,
  // where PackedBytesOfW is more than 0: it is packed from there.
  bool w_out_first = false;
  // w is as w_out_first says, in all three directions, and is multiplied where it lies, as a matrix, with columns of pixels
  // (im2col): neither turned nor packed. Calls that TakesColumns says yes to.
  bool columns = false;
  UseWinograd winograd = UseWinograd::kNever;
  void* y = nullptr;
  // On the written operand's rows: Conv counts output pixels and out_channels, and so on.
  Epilogue epilogue;
  // Conv's register epilogue does the same as the epilogue, which is there too and runs where this cannot. Then y holds nothing defined.
  Ending ending;
};

// Tells whether `columns` serves the call's types and groups, and is faster than turning w round: it has few pixels beside what w has.
bool TakesColumns(const ConvCall& call);

// Bytes of W as Conv packs it, and how; as PackedBytesOfB and PackedFormOfB say it of products.
int64_t PackedBytesOfW(const CpuTarget& target, const ConvCall& call);
std::vector<int64_t> PackedFormOfW(const CpuTarget& target, const ConvCall& call);
// Elements of W if UnpackW gives all of them back with their bits; else 0.
int64_t UnpackableW(const CpuTarget& target, const ConvCall& call);
// W as it lay before PackW. On the calling thread.
void UnpackW(const CpuTarget& target, const ConvCall& call, const void* packed, void* w);

// Pooling over NHWC (any rank up to kMaxSpatialDims): x [batch, in..., channels], y [batch, out..., channels].
enum class PoolKind : uint8_t { kMax, kMin, kSum };
struct PoolCall {
  PoolKind kind = PoolKind::kMax;
  DType dtype = DType::kF32;
  int64_t batch = 1, channels = 1;
  int spatial_rank = 2;
  std::array<SpatialDim, kMaxSpatialDims> dims;  // `reversed` is ignored
  // kSum multiplies every result by this: 1 / window for an average that counts padding.
  double scale = 1.0;
  // A gradient replaces a selected NaN by the next element, as StableHLO's select_and_scatter does where it selects by >=.
  bool nan_gives_way = false;
  const void* x = nullptr;
  void* y = nullptr;
};

// The gradient of max pooling: of each window's elements the first largest gets dy, NaN being the largest of all. dx is written whole.
// kMin likewise; kSum spreads scale * dy over the window.
struct PoolBackwardCall {
  PoolCall pool;  // geometry and x; y is not read
  const void* dy = nullptr;
  void* dx = nullptr;
};

// Tells whether its gradient adds what an element of bf16 or f16 was given in f32 and rounds it once; else after each addition.
bool RoundsOnce(const PoolCall& call);

// The number of output positions along a dimension, by StableHLO's rule; 0 where the window does not fit.
int64_t OutputSize(const SpatialDim& dim);

// The kernels for one target. Thread-safe; any number of calls may run at once. Packing space comes from ThreadScratch:
// what a launch has reserved, or the thread's own that persists.
class KernelSet {
 public:
  explicit KernelSet(CpuTarget target, CodeWatch watch = {});
  ~KernelSet();
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;

  const CpuTarget& target() const;

  absl::Status Gemm(const GemmCall& call, ThreadPool& pool);
  // The same in two halves, for a call that comes again at other places: checks it, chooses an implementation, cuts, and fetches
  // tiles. Null where that cannot be done ahead; then Gemm takes the call.
  absl::StatusOr<std::shared_ptr<const PlannedGemm>> PlanGemm(const GemmCall& call);
  absl::Status Gemm(const PlannedGemm& planned, const GemmPlaces& places, ThreadPool& pool);
  // Two products of as many rows and columns each, of the same types; the second reads nothing of the first, which has no epilogue.
  // As one after the other, but whoever computes columns of one computes those of both: threads meet once, and the second's
  // epilogue finds what it reads of the first near.
  absl::Status GemmPair(const GemmCall& first, const GemmCall& second, ThreadPool& pool);
  // Products that have B in common, each added to what there is.
  absl::Status AddSums(std::span<const SumCall> calls, ThreadPool& pool);
  // B, once for any number of calls that differ in A and C alone: PackedBytesOfB of it. The bits of products stay the same.
  absl::Status PackB(const GemmCall& call, void* packed, ThreadPool& pool) const;
  absl::Status Conv(const ConvCall& call, ThreadPool& pool);
  // W, once for any number of calls of Conv that differ in x and y alone: PackedBytesOfW of it. Bits stay the same.
  absl::Status PackW(const ConvCall& call, void* packed, ThreadPool& pool) const;
  absl::Status ConvBackwardData(const ConvCall& call, ThreadPool& pool);
  absl::Status ConvBackwardWeights(const ConvCall& call, ThreadPool& pool);
  absl::Status Pool(const PoolCall& call, ThreadPool& pool);
  absl::Status PoolBackward(const PoolBackwardCall& call, ThreadPool& pool);

  // Checks the call as the functions above do, generates the micro-kernels that it will need, and adds to `needs` the
  // scratch that it will ask for on so many threads. Pointers may be null, except that an epilogue must be there if it
  // will be. A call without it works too: it compiles at its first run. (Pooling compiles nothing.)
  absl::Status PrepareGemm(const GemmCall& call, int threads, ScratchNeeds& needs);
  absl::Status PreparePool(const PoolCall& call, bool backward, ScratchNeeds& needs) const;
  absl::Status PrepareSums(std::span<const SumCall> calls, ScratchNeeds& needs);
  absl::Status PrepareConv(const ConvCall& call, int threads, ScratchNeeds& needs);
  absl::Status PrepareConvBackwardData(const ConvCall& call, int threads, ScratchNeeds& needs);
  absl::Status PrepareConvBackwardWeights(const ConvCall& call, int threads, ScratchNeeds& needs);

  // The micro-kernels that `prepare`, calls of the functions above on this thread, would generate now and does not, because
  // Generate will be called for each of them, on any thread. One takes 3 to 9 ms.
  std::vector<int> MissingAfter(absl::FunctionRef<void()> prepare);
  absl::Status Generate(int kernel);

  // Every micro-kernel generated or imported so far, as bytes for the compile cache, and back. Bytes belong to one
  // Fingerprint(); importing others is a DATA_LOSS and changes nothing. Kernels that exist already are kept; others are
  // linked when they are asked for.
  std::string ExportObjects() const;
  absl::Status ImportObjects(std::span<const std::byte> objects);

  // Micro-kernels compiled in this process; stays 0 after a complete import.
  int64_t compiled() const;

  struct State;
  State& state() { return *state_; }  // for the rooms of kernels (tiles/kernels_internal.h)

 private:
  std::unique_ptr<State> state_;
};

}  // namespace weft::cpu
