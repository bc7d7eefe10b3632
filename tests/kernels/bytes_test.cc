// Products of bytes summed in i32: exact, or wrapped as i32 does, for every byte, however the machine multiplies them.
#include <sys/mman.h>

#include "src/backends/cpu/kernels/chosen.h"
#include "tests/kernels/conv_support.h"

namespace weft::cpu {
namespace {

// Mostly the ends of the type: a sum of two such products does not fit 16 bits.
template <typename T>
void FillWithEnds(Operand<T>& values, std::mt19937& random) {
  using Limits = std::numeric_limits<T>;
  for (int64_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = random();
    values[i] = bits % 3 == 0 ? Limits::min() : bits % 3 == 1 ? Limits::max() : static_cast<T>(bits >> 8);
  }
}

class Bytes : public EveryIsa {
 protected:
  void SetUp() override {
    EveryIsa::SetUp();
    if (kernels_ == nullptr) return;
    CpuTarget target = kernels_->target();
    target.has_byte_dot = false;
    target.tiles = TileUnit::kNone;
    pairs_ = std::make_unique<KernelSet>(target);
  }
  std::vector<KernelSet*> Both() const { return {kernels_.get(), pairs_.get()}; }

  std::unique_ptr<KernelSet> pairs_;  // of i16, as on a machine that multiplies no bytes
};

struct Shape {
  int64_t m, k, n;
};
// Every end of a four of K, tails of tiles and vectors, and several blocks of K.
const Shape kShapes[] = {{1, 1, 1},   {2, 2, 3},     {3, 3, 17},    {5, 4, 16},    {6, 5, 64},   {7, 6, 65},
                         {8, 7, 31},  {9, 8, 100},   {13, 63, 33},  {33, 64, 15},  {20, 65, 70}, {2, 4095, 20},
                         {7, 4096, 5}, {5, 4097, 40}, {40, 4099, 9}, {3, 8203, 66}, {70, 130, 130},
                         // Tiles of AMX, whole and not: steps of 64, blocks of K of 1,024, two and three blocks of rows.
                         {32, 128, 32}, {48, 1088, 48}, {33, 1023, 31}, {64, 2065, 33}, {540, 3, 17}, {5, 40, 1100}};

template <typename T>
GemmCall ProductOf(DType dtype, const Shape& shape, bool a_turned, bool b_turned, const Operand<T>& a, const Operand<T>& b,
                   Operand<int32_t>& c) {
  GemmCall call;
  call.input = dtype;
  call.output = DType::kI32;
  call.m = shape.m, call.k = shape.k, call.n = shape.n;
  call.a = {a.data(), a_turned ? 1 : shape.k, a_turned ? shape.m : 1, {}};
  call.b = {b.data(), b_turned ? 1 : shape.n, b_turned ? shape.k : 1, {}};
  call.c = c.data();
  return call;
}

template <typename T>
void ExpectSums(const GemmCall& call, const Operand<T>& a, const Operand<T>& b, const Operand<int32_t>& c) {
  for (int64_t i = 0; i < call.m; ++i) {
    for (int64_t j = 0; j < call.n; ++j) {
      uint32_t want = 0;
      for (int64_t k = 0; k < call.k; ++k) {
        want += static_cast<uint32_t>(int32_t{a[i * call.a.row_stride + k * call.a.col_stride]} *
                                      int32_t{b[k * call.b.row_stride + j * call.b.col_stride]});
      }
      ASSERT_EQ(c[i * call.n + j], static_cast<int32_t>(want)) << "at " << i << ", " << j;
    }
  }
}

template <typename T>
void CheckProduct(KernelSet& kernels, DType dtype, const Shape& shape, bool a_turned, bool b_turned,
                  std::span<ThreadPool* const> pools) {
  SCOPED_TRACE(testing::Message() << NameOf(dtype) << " " << shape.m << "x" << shape.k << "x" << shape.n << " " << a_turned
                                  << b_turned << (kernels.target().has_byte_dot ? "" : " in pairs"));
  std::mt19937 random(static_cast<uint32_t>(shape.m * 31 + shape.k));
  Operand<T> a(shape.m * shape.k), b(shape.k * shape.n);
  FillWithEnds(a, random);
  FillWithEnds(b, random);
  for (ThreadPool* pool : pools) {
    Operand<int32_t> c(shape.m * shape.n);
    GemmCall call = ProductOf(dtype, shape, a_turned, b_turned, a, b, c);
    ASSERT_TRUE(ReservedGemm(kernels, call, *pool).ok());
    EXPECT_TRUE(c.GuardsHold());
    ASSERT_NO_FATAL_FAILURE(ExpectSums(call, a, b, c));
    const int64_t bytes = PackedBytesOfB(kernels.target(), call);
    if (bytes == 0) continue;
    Operand<char> packed(bytes);
    ASSERT_TRUE(kernels.PackB(call, packed.data(), *pool).ok());
    EXPECT_TRUE(packed.GuardsHold());
    call.b.data = packed.data();
    call.b_packed = true;
    c.Poison();
    ASSERT_TRUE(ReservedGemm(kernels, call, *pool).ok());
    ASSERT_NO_FATAL_FAILURE(ExpectSums(call, a, b, c));
  }
}

TEST_P(Bytes, AreMultipliedExactlyInEveryShape) {
  ThreadPool* const pools[] = {&one_, &two_, &Five()};
  for (const Shape& shape : kShapes) {
    for (int form = 0; form < 4; ++form) {
      for (KernelSet* kernels : Both()) {
        ASSERT_NO_FATAL_FAILURE(
            CheckProduct<int8_t>(*kernels, DType::kI8, shape, (form & 1) != 0, (form & 2) != 0, pools));
        ASSERT_NO_FATAL_FAILURE(
            CheckProduct<uint8_t>(*kernels, DType::kU8, shape, (form & 1) != 0, (form & 2) != 0, pools));
      }
    }
  }
}

// Members of a batch far apart, one of B for all of them or one each.
template <typename T>
void CheckBatch(KernelSet& kernels, DType dtype, const Shape& shape, bool shared, ThreadPool& pool) {
  constexpr int64_t kMembers = 7, kGap = 5;
  const int64_t a_size = shape.m * shape.k + kGap, b_size = shared ? 0 : shape.k * shape.n + kGap, c_size = shape.m * shape.n;
  std::mt19937 random(static_cast<uint32_t>(shape.k));
  Operand<T> a(kMembers * a_size), b(kMembers * b_size + shape.k * shape.n);
  FillWithEnds(a, random);
  FillWithEnds(b, random);
  Operand<int32_t> c(kMembers * c_size);
  GemmCall call = ProductOf(dtype, shape, false, false, a, b, c);
  call.batch_rank = 1, call.batch_sizes[0] = kMembers;
  call.a.batch_strides[0] = a_size, call.b.batch_strides[0] = b_size, call.c_batch_strides[0] = c_size;
  ASSERT_TRUE(ReservedGemm(kernels, call, pool).ok());
  EXPECT_TRUE(c.GuardsHold());
  for (int64_t at = 0; at < c.size(); ++at) {
    const int64_t member = at / c_size, i = at % c_size / shape.n, j = at % shape.n;
    int64_t want = 0;
    for (int64_t k = 0; k < shape.k; ++k) {
      want += int64_t{a[member * a_size + i * shape.k + k]} * b[member * b_size + k * shape.n + j];
    }
    ASSERT_EQ(c[at], want) << "at " << at << " of " << shape.m << "x" << shape.k << "x" << shape.n;
  }
}

TEST_P(Bytes, AreMultipliedInBatches) {
  for (const Shape& shape : {Shape{3, 70, 19}, {32, 64, 32}, {47, 129, 33}}) {
    for (const bool shared : {false, true}) {
      for (KernelSet* kernels : Both()) {
        ASSERT_NO_FATAL_FAILURE(CheckBatch<int8_t>(*kernels, DType::kI8, shape, shared, two_));
        ASSERT_NO_FATAL_FAILURE(CheckBatch<uint8_t>(*kernels, DType::kU8, shape, shared, Five()));
      }
    }
  }
}

template <typename T>
void CheckAlike(KernelSet& kernels, DType dtype, ThreadPool& pool) {
  constexpr int64_t kSteps = 140'000;  // of u8 and of -128 more than i32 holds
  Operand<T> a(2 * kSteps), b(kSteps * 3);
  Operand<int32_t> c(6);
  const GemmCall call = ProductOf(dtype, {2, kSteps, 3}, false, false, a, b, c);
  using Limits = std::numeric_limits<T>;
  for (const T left : {Limits::min(), Limits::max()}) {
    for (const T right : {Limits::min(), Limits::max()}) {
      std::fill_n(a.data(), a.size(), left);
      std::fill_n(b.data(), b.size(), right);
      ASSERT_TRUE(ReservedGemm(kernels, call, pool).ok());
      const int64_t want = kSteps * left * right;
      for (int64_t i = 0; i < 6; ++i) ASSERT_EQ(c[i], static_cast<int32_t>(static_cast<uint32_t>(want))) << +left << " " << +right;
    }
  }
}

TEST_P(Bytes, SumsWrapAsI32Does) {
  for (KernelSet* kernels : Both()) {
    ASSERT_NO_FATAL_FAILURE(CheckAlike<int8_t>(*kernels, DType::kI8, two_));
    ASSERT_NO_FATAL_FAILURE(CheckAlike<uint8_t>(*kernels, DType::kU8, two_));
  }
}

template <typename T>
void CheckConv(KernelSet& kernels, DType dtype, ConvCall call, ThreadPool& pool) {
  SCOPED_TRACE(testing::Message() << NameOf(dtype) << " " << call.in_channels << " to " << call.out_channels << " in "
                                  << call.feature_groups << (kernels.target().has_byte_dot ? "" : " in pairs"));
  const SpatialDim &rows = call.dims[0], &columns = call.dims[1];
  const int64_t from = call.in_channels / call.feature_groups, to = call.out_channels / call.feature_groups;
  std::mt19937 random(11);
  Operand<T> x(call.batch * rows.in * columns.in * call.in_channels);
  Operand<T> w(rows.window * columns.window * from * call.out_channels);
  Operand<int32_t> y(call.batch * rows.out * columns.out * call.out_channels);
  FillWithEnds(x, random);
  FillWithEnds(w, random);
  call.input = dtype, call.output = DType::kI32;
  call.x = x.data(), call.w = w.data(), call.y = y.data();
  ASSERT_TRUE(kernels.Conv(call, pool).ok());
  EXPECT_TRUE(y.GuardsHold());
  for (int64_t at = 0; at < y.size(); ++at) {
    const int64_t channel = at % call.out_channels, column = at / call.out_channels % columns.out;
    const int64_t row = at / call.out_channels / columns.out % rows.out, image = at / call.out_channels / columns.out / rows.out;
    int64_t want = 0;
    for (int64_t i = 0; i < rows.window; ++i) {
      for (int64_t j = 0; j < columns.window; ++j) {
        const int64_t r = InputPosition(rows, row, i), c = InputPosition(columns, column, j);
        if (r < 0 || c < 0) continue;
        for (int64_t k = 0; k < from; ++k) {
          want += int64_t{x[((image * rows.in + r) * columns.in + c) * call.in_channels + channel / to * from + k]} *
                  w[((i * columns.window + j) * from + k) * call.out_channels + channel];
        }
      }
    }
    ASSERT_EQ(y[at], want) << "at " << at;
  }
}

SpatialDim Along(int64_t in, int64_t window, int64_t stride, int64_t pad, int64_t dilation, int64_t spread = 1) {
  SpatialDim dim{in, window, 1, stride, pad, pad, spread, dilation};
  dim.out = OutputSize(dim);
  return dim;
}

TEST_P(Bytes, AreConvolvedExactly) {
  std::vector<ConvCall> calls;
  const auto add = [&](int64_t in, int64_t out, int64_t groups, SpatialDim rows, SpatialDim columns) {
    ConvCall call;
    call.batch = 2, call.in_channels = in, call.out_channels = out, call.feature_groups = groups;
    call.dims[0] = rows, call.dims[1] = columns;
    calls.push_back(call);
  };
  add(4, 8, 1, Along(9, 3, 1, 1, 1), Along(7, 3, 1, 1, 1));
  add(3, 8, 1, Along(9, 3, 1, 1, 1), Along(9, 3, 1, 1, 1));
  add(8, 20, 2, Along(11, 3, 2, 1, 1), Along(12, 3, 2, 1, 1));
  add(64, 70, 1, Along(14, 3, 1, 1, 1), Along(14, 3, 1, 1, 1));
  add(32, 100, 1, Along(7, 1, 1, 0, 1), Along(7, 1, 1, 0, 1));
  add(16, 16, 16, Along(8, 3, 1, 1, 1), Along(8, 3, 1, 1, 1));
  add(12, 33, 3, Along(13, 5, 2, 2, 1), Along(17, 3, 1, 4, 2));
  add(300, 17, 1, Along(5, 3, 1, 1, 1), Along(5, 3, 1, 1, 1));
  add(6, 35, 1, Along(6, 3, 1, 2, 1, 2), Along(7, 2, 1, 1, 1, 3));  // results in several phases
  add(64, 48, 1, Along(8, 1, 1, 0, 1), Along(8, 1, 1, 0, 1));       // pixels that tiles read where they lie
  for (const ConvCall& call : calls) {
    for (KernelSet* kernels : Both()) {
      ASSERT_NO_FATAL_FAILURE(CheckConv<int8_t>(*kernels, DType::kI8, call, two_));
      ASSERT_NO_FATAL_FAILURE(CheckConv<uint8_t>(*kernels, DType::kU8, call, two_));
    }
  }
}

// Bytes between two pages that nobody may read: at the end of theirs, or at the beginning.
class Fenced {
 public:
  Fenced(int64_t count, bool at_end) {
    constexpr int64_t kPage = 4096;
    const int64_t inside = (count + kPage - 1) / kPage * kPage;
    bytes_ = inside + 2 * kPage;
    memory_ = static_cast<char*>(mmap(nullptr, static_cast<size_t>(bytes_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(mprotect(memory_ + kPage, static_cast<size_t>(inside), PROT_READ | PROT_WRITE), 0);
    data_ = memory_ + kPage + (at_end ? inside - count : 0);
    for (int64_t i = 0; i < count; ++i) data_[i] = static_cast<char>(i * 37 + 5);
  }
  ~Fenced() { munmap(memory_, static_cast<size_t>(bytes_)); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  const char* data() const { return data_; }

 private:
  char *memory_ = nullptr, *data_ = nullptr;
  int64_t bytes_ = 0;
};

TEST_P(Bytes, NothingBesideThemIsRead) {
  for (const bool at_end : {false, true}) {
    for (const Shape& shape : {Shape{1, 1, 1}, {3, 3, 5}, {2, 5, 17}, {7, 6, 16}, {9, 63, 33}, {4, 4099, 3}, {14, 130, 70},
                               {16, 64, 16}, {32, 130, 33}}) {
      for (int form = 0; form < 4; ++form) {
        SCOPED_TRACE(testing::Message() << shape.m << "x" << shape.k << "x" << shape.n << " " << form << at_end);
        const Fenced a(shape.m * shape.k, at_end), b(shape.k * shape.n, at_end);
        Operand<int32_t> c(shape.m * shape.n);
        GemmCall call;
        call.input = DType::kI8, call.output = DType::kI32;
        call.m = shape.m, call.k = shape.k, call.n = shape.n;
        call.a = {a.data(), (form & 1) != 0 ? 1 : shape.k, (form & 1) != 0 ? shape.m : 1, {}};
        call.b = {b.data(), (form & 2) != 0 ? 1 : shape.n, (form & 2) != 0 ? shape.k : 1, {}};
        call.c = c.data();
        ASSERT_TRUE(ReservedGemm(*kernels_, call, one_).ok());
        int32_t want = 0;  // of the last element
        for (int64_t k = 0; k < shape.k; ++k) {
          want += static_cast<int8_t>(a.data()[(shape.m - 1) * call.a.row_stride + k * call.a.col_stride]) *
                  static_cast<int8_t>(b.data()[k * call.b.row_stride + (shape.n - 1) * call.b.col_stride]);
        }
        ASSERT_EQ(c[c.size() - 1], want);
      }
    }
    for (const int64_t channels : {4, 6, 12}) {
      ConvCall call;
      call.input = DType::kI8, call.output = DType::kI32;
      call.in_channels = channels, call.out_channels = 5;
      call.dims[0] = call.dims[1] = Along(7, 3, 1, 1, 1);
      const Fenced x(49 * channels, at_end), w(9 * channels * 5, at_end);
      Operand<int32_t> y(49 * 5);
      call.x = x.data(), call.w = w.data(), call.y = y.data();
      ASSERT_TRUE(kernels_->Conv(call, one_).ok());
    }
  }
}

TEST_P(Bytes, SayWhatMultipliesThem) {
  for (KernelSet* kernels : Both()) {
    const bool vnni = kernels->target().has_byte_dot, amx = kernels->target().tiles != TileUnit::kNone;
    ScratchNeeds needs;
    Operand<int8_t> a(12 * 64), b(64 * 32);
    Operand<int32_t> c(12 * 32);
    const ChoiceScope product;
    ASSERT_TRUE(kernels->PrepareGemm(ProductOf(DType::kI8, {12, 64, 32}, false, false, a, b, c), 1, needs).ok());
    EXPECT_EQ(product.chosen(), amx ? "gemm amx" : vnni ? "gemm tiles vnni" : "gemm tiles");
    ConvCall call;
    call.input = DType::kU8, call.output = DType::kI32;
    call.in_channels = 8, call.out_channels = 16;
    call.dims[0] = call.dims[1] = Along(9, 3, 1, 1, 1);
    const ChoiceScope convolution;
    ASSERT_TRUE(kernels->PrepareConv(call, 1, needs).ok());
    EXPECT_EQ(convolution.chosen(), amx ? "conv amx" : vnni ? "conv gather vnni" : "conv gather");
  }
}

WEFT_EVERY_ISA(Bytes);

}  // namespace
}  // namespace weft::cpu
