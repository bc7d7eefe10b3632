// Matrix products against sums in double over odd shapes, transposes, types, threads and instruction sets.
#include <cstring>

#include "tests/kernels/kernels_support.h"

namespace weft::cpu {
namespace {

struct Shape {
  int64_t m, k, n;
};

// Small corners, tails of every tile height and width, several K blocks (of few rows and of many), shapes that split by rows or by
// columns, and one whose tiles ask for what is packed after them.
const Shape kShapes[] = {{1, 1, 1},   {1, 7, 5},     {2, 3, 16},   {5, 9, 17},    {6, 8, 64},    {7, 31, 65},  {13, 5, 100},
                         {12, 450, 70}, {37, 131, 77}, {64, 300, 10}, {100, 17, 3}, {3, 1000, 130}, {130, 449, 33}, {65, 897, 40},
                         {20, 2051, 70}, {260, 900, 33}, {257, 1100, 20}, {100, 460, 300}};

// Few rows, whose B is streamed: every height, ends of columns and of K that fill no vector, columns that are dealt out and
// such that K is, in parts; one column, which is a row of the transposed product.
const Shape kFewRows[] = {{1, 768, 1030}, {2, 37, 1111}, {3, 129, 1153}, {4, 64, 1024}, {5, 100, 300}, {6, 513, 67},
                          {7, 33, 1090},  {8, 300, 200}, {1, 5000, 9},   {4, 3000, 16}, {1, 9000, 1},  {8, 70, 1},
                          {9, 70, 1},     {700, 130, 1}, {1, 3, 40000},  {1, 1, 20000}};

template <typename In, typename Out>
void Check(KernelSet& kernels, DType in, DType out, Shape shape, bool a_transposed, bool b_transposed, ThreadPool& one,
           ThreadPool& two, double tolerance) {
  SCOPED_TRACE(testing::Message() << NameOf(in) << "->" << NameOf(out) << " " << shape.m << "x" << shape.k << "x"
                                  << shape.n << " ta=" << a_transposed << " tb=" << b_transposed);
  std::mt19937 random(7);
  Operand<In> a(shape.m * shape.k), b(shape.k * shape.n);
  Operand<Out> c(shape.m * shape.n), again(shape.m * shape.n);
  a.Randomize(random);
  b.Randomize(random);
  GemmCall call;
  call.input = in;
  call.output = out;
  call.m = shape.m;
  call.k = shape.k;
  call.n = shape.n;
  call.a.data = a.data();
  call.a.row_stride = a_transposed ? 1 : shape.k;
  call.a.col_stride = a_transposed ? shape.m : 1;
  call.b.data = b.data();
  call.b.row_stride = b_transposed ? 1 : shape.n;
  call.b.col_stride = b_transposed ? shape.k : 1;
  call.c = c.data();
  ASSERT_TRUE(kernels.Gemm(call, one).ok());
  call.c = again.data();
  for (ThreadPool* pool : {&one, &two, &Five()}) {
    again.Poison();
    const absl::Status status = ReservedGemm(kernels, call, *pool);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(c.SameBits(again)) << pool->threads() << " threads give other bits";
  }
  // The same from an operand that was packed before.
  for (ThreadPool* pool : {&one, &two, &Five()}) {
    const int64_t bytes = PackedBytesOfB(kernels.target(), call);
    if (bytes == 0) break;
    Operand<char> packed(bytes);
    ASSERT_TRUE(kernels.PackB(call, packed.data(), *pool).ok());
    EXPECT_TRUE(packed.GuardsHold());
    GemmCall ready = call;
    ready.b.data = packed.data();
    ready.b_packed = true;
    again.Poison();
    ASSERT_TRUE(ReservedGemm(kernels, ready, *pool).ok());
    EXPECT_TRUE(c.SameBits(again)) << pool->threads() << " threads give other bits of a packed operand";
  }
  EXPECT_TRUE(c.GuardsHold());
  for (int64_t i = 0; i < shape.m; ++i) {
    for (int64_t j = 0; j < shape.n; ++j) {
      double want = 0;
      for (int64_t k = 0; k < shape.k; ++k) {
        want += a.At(i * call.a.row_stride + k * call.a.col_stride) * b.At(k * call.b.row_stride + j * call.b.col_stride);
      }
      ASSERT_NEAR(c.At(i * shape.n + j), want, tolerance * (std::abs(want) + 1)) << "at " << i << ", " << j;
    }
  }
}

class Gemm : public EveryIsa {};

TEST_P(Gemm, AgreesWithDoubleSumsForF32InAllTransposes) {
  for (const Shape& shape : kShapes) {
    for (int form = 0; form < 4; ++form) {
      Check<float, float>(*kernels_, DType::kF32, DType::kF32, shape, form & 1, form & 2, one_, two_, 1e-6);
    }
  }
}

// Of B so much that it is packed in two parts, and A again for each.
TEST_P(Gemm, PacksColumnsOfATogether) {
  for (const bool transposed : {false, true}) {
    Check<float, float>(*kernels_, DType::kF32, DType::kF32, {66, 440, 1900}, true, transposed, one_, two_, 1e-6);
  }
  Check<BF16, float>(*kernels_, DType::kBF16, DType::kF32, {66, 880, 1900}, true, false, one_, two_, 1e-6);
}

TEST_P(Gemm, AgreesWithDoubleSumsForF64) {
  for (const Shape& shape : {kShapes[3], kShapes[5], kShapes[7], kShapes[8], kShapes[12]}) {
    for (int form = 0; form < 4; ++form) {
      Check<double, double>(*kernels_, DType::kF64, DType::kF64, shape, form & 1, form & 2, one_, two_, 1e-14);
    }
  }
}

TEST_P(Gemm, AccumulatesBF16AndF16InF32) {
  for (const Shape& shape : {kShapes[0], kShapes[3], kShapes[5], kShapes[8], kShapes[13]}) {
    for (int form = 0; form < 4; ++form) {
      Check<BF16, float>(*kernels_, DType::kBF16, DType::kF32, shape, form & 1, form & 2, one_, two_, 1e-6);
      Check<BF16, BF16>(*kernels_, DType::kBF16, DType::kBF16, shape, form & 1, form & 2, one_, two_, 4e-3);
    }
    Check<F16, F16>(*kernels_, DType::kF16, DType::kF16, shape, false, true, one_, two_, 5e-4);
  }
}

TEST_P(Gemm, StreamsTheMatrixForFewRows) {
  for (const Shape& shape : kFewRows) {
    for (int form = 0; form < 4; ++form) {
      Check<float, float>(*kernels_, DType::kF32, DType::kF32, shape, form & 1, form & 2, one_, two_, 1e-6);
    }
    Check<double, double>(*kernels_, DType::kF64, DType::kF64, shape, false, shape.m % 2 == 0, one_, two_, 1e-14);
    Check<BF16, float>(*kernels_, DType::kBF16, DType::kF32, shape, false, shape.m % 2 == 0, one_, two_, 1e-6);
    Check<BF16, BF16>(*kernels_, DType::kBF16, DType::kBF16, shape, true, shape.m % 2 == 1, one_, two_, 4e-3);
    Check<F16, F16>(*kernels_, DType::kF16, DType::kF16, shape, false, shape.m % 2 == 1, one_, two_, 5e-4);
    Check<F16, float>(*kernels_, DType::kF16, DType::kF32, shape, false, shape.m % 2 == 0, one_, two_, 1e-6);
  }
}

TEST_P(Gemm, PacksNothingForFewRows) {
  GemmCall call;
  call.m = 8;
  call.k = 768;
  call.n = 3072;
  call.a = {nullptr, 768, 1, {}};
  for (const bool transposed : {false, true}) {
    call.b = {nullptr, transposed ? 1 : 3072, transposed ? 768 : 1, {}};
    EXPECT_EQ(PackedBytesOfB(kernels_->target(), call), 0);
    ScratchNeeds needs;
    ASSERT_TRUE(kernels_->PrepareGemm(call, 2, needs).ok());
    for (int slot = 0; slot < static_cast<int>(ScratchSlot::kCount); ++slot) {
      EXPECT_EQ(needs.Of(0, static_cast<ScratchSlot>(slot)), 0) << slot;
      EXPECT_EQ(needs.Of(1, static_cast<ScratchSlot>(slot)), 0) << slot;
    }
  }
  call.m = 200;
  EXPECT_GE(PackedBytesOfB(kernels_->target(), call), 768 * 3072 * 4);
}

TEST_P(Gemm, WrapsIntegersAndJoinsBools) {
  Check<int32_t, int32_t>(*kernels_, DType::kI32, DType::kI32, {37, 31, 40}, true, false, one_, two_, 0);
  Check<int64_t, int64_t>(*kernels_, DType::kI64, DType::kI64, {5, 9, 17}, false, true, one_, two_, 0);
  int8_t a[4] = {100, 100, 1, -1}, b[2] = {1, 1}, c[2];
  GemmCall call;
  call.input = call.output = DType::kI8;
  call.m = 2;
  call.k = 2;
  call.n = 1;
  call.a = {a, 2, 1, {}};
  call.b = {b, 1, 1, {}};
  call.c = c;
  ASSERT_TRUE(kernels_->Gemm(call, one_).ok());
  EXPECT_EQ(c[0], static_cast<int8_t>(200));
  EXPECT_EQ(c[1], 0);
  uint8_t flags[4] = {1, 0, 0, 0}, ones[2] = {1, 1}, any[2];
  call.input = call.output = DType::kBool;
  call.a.data = flags;
  call.b.data = ones;
  call.c = any;
  ASSERT_TRUE(kernels_->Gemm(call, one_).ok());
  EXPECT_EQ(any[0], 1);
  EXPECT_EQ(any[1], 0);
}

TEST_P(Gemm, SumsIntegersOnTiles) {
  for (const Shape& shape : kShapes) {
    for (int form = 0; form < 4; ++form) {
      Check<int8_t, int32_t>(*kernels_, DType::kI8, DType::kI32, shape, form & 1, form & 2, one_, two_, 0);
      Check<int16_t, int32_t>(*kernels_, DType::kI16, DType::kI32, shape, form & 1, form & 2, one_, two_, 0);
    }
    Check<uint8_t, int32_t>(*kernels_, DType::kU8, DType::kI32, shape, shape.m % 2 == 0, shape.k % 2 == 0, one_, two_, 0);
    Check<int32_t, int32_t>(*kernels_, DType::kI32, DType::kI32, shape, shape.m % 2 == 1, shape.k % 2 == 1, one_, two_, 0);
    Check<int64_t, int64_t>(*kernels_, DType::kI64, DType::kI64, shape, shape.k % 2 == 0, shape.m % 2 == 0, one_, two_, 0);
  }
}

TEST_P(Gemm, WalksBatchesByTheirStridesAndBroadcasts) {
  std::mt19937 random(3);
  const int64_t m = 9, k = 20, n = 33;
  Operand<float> a(6 * m * k), b(2 * k * n), c(6 * m * n);
  a.Randomize(random);
  b.Randomize(random);
  GemmCall call;
  call.m = m;
  call.k = k;
  call.n = n;
  call.batch_rank = 2;
  call.batch_sizes = {2, 3};
  call.a = {a.data(), k, 1, {3 * m * k, m * k}};
  call.b = {b.data(), n, 1, {k * n, 0}};
  call.c = c.data();
  call.c_batch_strides = {3 * m * n, m * n};
  ASSERT_TRUE(kernels_->Gemm(call, two_).ok());
  for (int64_t i = 0; i < 6 * m * n; ++i) {
    const int64_t member = i / (m * n), row = i / n % m, column = i % n;
    double want = 0;
    for (int64_t j = 0; j < k; ++j) want += a[member * m * k + row * k + j] * b[member / 3 * k * n + j * n + column];
    ASSERT_FLOAT_EQ(c[i], static_cast<float>(want)) << i;
  }
}

// A query a head against the keys that it has seen, then its weights times their values.
TEST_P(Gemm, StreamsTheMatricesOfABatch) {
  for (const int64_t members : {3, 24}) {  // each cut for two threads, and dealt out whole
    for (const bool along : {true, false}) {
      std::mt19937 random(11);
      const int64_t m = 2, k = along ? 64 : 515, n = along ? 515 : 64;
      Operand<float> a(members * m * k), b(members * k * n), c(members * m * n), again(members * m * n);
      a.Randomize(random);
      b.Randomize(random);
      GemmCall call;
      call.m = m;
      call.k = k;
      call.n = n;
      call.batch_rank = 1;
      call.batch_sizes = {members};
      call.a = {a.data(), k, 1, {m * k}};
      call.b = {b.data(), along ? 1 : n, along ? k : 1, {k * n}};
      call.c_batch_strides = {m * n};
      call.c = c.data();
      ASSERT_TRUE(ReservedGemm(*kernels_, call, one_).ok());
      call.c = again.data();
      ASSERT_TRUE(ReservedGemm(*kernels_, call, two_).ok());
      EXPECT_TRUE(c.SameBits(again));
      for (int64_t i = 0; i < members * m * n; ++i) {
        const int64_t member = i / (m * n), row = i / n % m, column = i % n;
        double want = 0;
        for (int64_t s = 0; s < k; ++s) {
          want += a.At((member * m + row) * k + s) * b.At(member * k * n + (along ? column * k + s : s * n + column));
        }
        ASSERT_FLOAT_EQ(c[i], static_cast<float>(want)) << i;
      }
    }
  }
}

TEST_P(Gemm, AddsToTheResultWhenAskedAndLeavesRowsBeyondNAlone) {
  const int64_t m = 7, k = 500, n = 20, stride = 24;
  std::mt19937 random(5);
  Operand<float> a(m * k), b(k * n), c(m * stride);
  a.Randomize(random);
  b.Randomize(random);
  for (int64_t i = 0; i < c.size(); ++i) c[i] = 0.5f;
  GemmCall call;
  call.m = m;
  call.k = k;
  call.n = n;
  call.a = {a.data(), k, 1, {}};
  call.b = {b.data(), n, 1, {}};
  call.c = c.data();
  call.c_row_stride = stride;
  call.accumulate = true;
  ASSERT_TRUE(kernels_->Gemm(call, two_).ok());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < stride; ++j) {
      double want = 0.5;
      for (int64_t s = 0; s < k && j < n; ++s) want += a[i * k + s] * b[s * n + j];
      ASSERT_FLOAT_EQ(c[i * stride + j], static_cast<float>(want));
    }
  }
}

TEST_P(Gemm, CallsTheEpilogueOnceForEveryElement) {
  for (const auto& [m, k, n] : {Shape{61, 900, 150}, Shape{3, 900, 150}, Shape{3, 90, 1500}, Shape{700, 300, 1}}) {
    std::mt19937 random(5);
    Operand<float> a(m * k), b(k * n), c(m * n);
    a.Randomize(random);
    b.Randomize(random);
    std::vector<std::atomic<int>> seen(m * n);
    struct Context {
      std::vector<std::atomic<int>>* seen;
      int64_t n;
    } context{&seen, n};
    GemmCall call;
    call.m = m;
    call.k = k;
    call.n = n;
    call.a = {a.data(), k, 1, {}};
    call.b = {b.data(), n, 1, {}};
    call.c = c.data();
    call.epilogue.context = &context;
    call.epilogue.run = [](void* user, int64_t, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
      auto* context = static_cast<Context*>(user);
      for (int64_t r = row0; r < row0 + rows; ++r) {
        for (int64_t j = col0; j < col0 + cols; ++j) ++(*context->seen)[r * context->n + j];
      }
    };
    for (ThreadPool* pool : {&one_, &two_, &Five()}) {
      for (auto& count : seen) count = 0;
      ASSERT_TRUE(ReservedGemm(*kernels_, call, *pool).ok());
      for (auto& count : seen) ASSERT_EQ(count, 1);
    }
  }
}

// Sums of four parts of the columns, each of another weight, as an LSTM's gates are read: those that panels fit and those that not,
// few rows, other types, K of none, one block and several.
template <typename T>
void CheckParts(KernelSet& kernels, DType dtype, Shape shape, ThreadPool& one, ThreadPool& two) {
  constexpr int64_t kParts = 4;
  const auto [m, k, n] = shape;
  SCOPED_TRACE(testing::Message() << NameOf(dtype) << " " << m << "x" << k << "x" << n);
  std::mt19937 random(13);
  Operand<T> a(m * k), b(k * n), c(m * n), want(m * n);
  a.Randomize(random);
  b.Randomize(random);
  GemmCall call;
  call.input = call.output = dtype;
  call.m = m;
  call.k = k;
  call.n = n;
  call.a = {a.data(), k, 1, {}};
  call.b = {b.data(), n, 1, {}};
  call.c = want.data();
  ASSERT_TRUE(kernels.Gemm(call, two).ok());
  struct Context {
    const Operand<T>* c;
    std::vector<double> sums;
    std::vector<std::atomic<int>> seen;
    int64_t n;
  } context{&c, std::vector<double>(m * n / kParts), std::vector<std::atomic<int>>(m * n / kParts), n};
  call.c = c.data();
  call.epilogue.context = &context;
  call.epilogue.parts = kParts;
  call.epilogue.run = [](void* user, int64_t, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
    auto* context = static_cast<Context*>(user);
    const int64_t width = context->n / kParts;
    for (int64_t r = row0; r < row0 + rows; ++r) {
      for (int64_t j = col0; j < col0 + cols; ++j) {
        ++context->seen[r * width + j];
        for (int64_t p = 0; p < kParts; ++p) {
          context->sums[r * width + j] += static_cast<double>(p + 1) * context->c->At(r * context->n + p * width + j);
        }
      }
    }
  };
  for (ThreadPool* pool : {&one, &two, &Five()}) {
    c.Poison();
    std::ranges::fill(context.sums, 0);
    for (auto& count : context.seen) count = 0;
    ASSERT_TRUE(ReservedGemm(kernels, call, *pool).ok());
    EXPECT_TRUE(c.SameBits(want));
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t j = 0; j < n / kParts; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < kParts; ++p) sum += static_cast<double>(p + 1) * want.At(r * n + p * (n / kParts) + j);
        ASSERT_EQ(context.seen[r * (n / kParts) + j], 1);
        ASSERT_EQ(context.sums[r * (n / kParts) + j], sum) << pool->threads() << " threads at " << r << ", " << j;
      }
    }
  }
}

TEST_P(Gemm, RunsAnEpilogueOfSeveralPartsOnceThatColumnOfEachIsFinished) {
  for (const Shape& shape : {Shape{32, 256, 1024}, Shape{33, 900, 512}, Shape{13, 40, 100}, Shape{3, 90, 1500}, Shape{300, 64, 64},
                             Shape{20, 0, 256}}) {
    CheckParts<float>(*kernels_, DType::kF32, shape, one_, two_);
  }
  CheckParts<double>(*kernels_, DType::kF64, {24, 100, 512}, one_, two_);
  CheckParts<BF16>(*kernels_, DType::kBF16, {32, 128, 512}, one_, two_);
}

// Two products and an epilogue that reads both, in parts and whole; also where they are made one after the other.
TEST_P(Gemm, APairIsTwoProductsAndTheEpilogueFindsBoth) {
  for (const int64_t parts : {1, 4}) {
    for (const auto& [m, k, n] : {Shape{32, 256, 1024}, Shape{33, 500, 512}, Shape{13, 40, 100}, Shape{3, 90, 1500}, Shape{200, 30, 64}}) {
      SCOPED_TRACE(testing::Message() << parts << " parts of " << m << "x" << k << "x" << n);
      const int64_t other = k / 2 + 3;
      std::mt19937 random(17);
      Operand<float> a(m * k), b(k * n), a2(m * other), b2(other * n), c(m * n), c2(m * n), want(m * n), want2(m * n);
      for (Operand<float>* each : {&a, &b, &a2, &b2}) each->Randomize(random);
      GemmCall first, second;
      first.m = second.m = m;
      first.n = second.n = n;
      first.k = k;
      second.k = other;
      first.a = {a.data(), k, 1, {}};
      first.b = {b.data(), n, 1, {}};
      second.a = {a2.data(), other, 1, {}};
      second.b = {b2.data(), n, 1, {}};
      first.c = want.data();
      second.c = want2.data();
      ASSERT_TRUE(kernels_->Gemm(first, two_).ok() && kernels_->Gemm(second, two_).ok());
      struct Context {
        const Operand<float>*c, *c2;
        std::vector<float> sums;
        int64_t n, parts;
      } context{&c, &c2, std::vector<float>(m * n), n, parts};
      first.c = c.data();
      second.c = c2.data();
      second.epilogue.context = &context;
      second.epilogue.parts = parts;
      second.epilogue.run = [](void* user, int64_t, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
        auto* context = static_cast<Context*>(user);
        for (int64_t r = row0; r < row0 + rows; ++r) {
          for (int64_t p = 0; p < context->parts; ++p) {
            for (int64_t j = col0; j < col0 + cols; ++j) {
              const int64_t at = r * context->n + p * (context->n / context->parts) + j;
              context->sums[at] += (*context->c)[at] + (*context->c2)[at];
            }
          }
        }
      };
      for (ThreadPool* pool : {&one_, &two_, &Five()}) {
        c.Poison();
        c2.Poison();
        std::ranges::fill(context.sums, 0);
        const absl::Status status = Reserved(
            *pool,
            [&](int threads, ScratchNeeds& needs) {
              WEFT_RETURN_IF_ERROR(kernels_->PrepareGemm(first, threads, needs));
              return kernels_->PrepareGemm(second, threads, needs);
            },
            [&](ThreadPool& p) { return kernels_->GemmPair(first, second, p); });
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(c.SameBits(want) && c2.SameBits(want2));
        for (int64_t i = 0; i < m * n; ++i) ASSERT_EQ(context.sums[i], want[i] + want2[i]) << pool->threads() << " threads at " << i;
      }
    }
  }
}

TEST_P(Gemm, HandsEveryFinishedBlockToAnEpilogueThatConsumesIt) {
  // One block of K, which needs no C, and several; few rows; one column.
  for (const auto& [m, k, n] : {Shape{130, 60, 150}, Shape{130, 900, 150}, Shape{3, 900, 150}, Shape{700, 300, 1}}) {
    std::mt19937 random(6);
    Operand<float> a(m * k), b(k * n), c(m * n), want(m * n), got(m * n);
    a.Randomize(random);
    b.Randomize(random);
    GemmCall call;
    call.m = m;
    call.k = k;
    call.n = n;
    call.a = {a.data(), 1, m, {}};
    call.b = {b.data(), n, 1, {}};
    call.c = want.data();
    ASSERT_TRUE(kernels_->Gemm(call, two_).ok());
    struct Context {
      float* got;
      int64_t n;
    } context{got.data(), n};
    call.c = c.data();
    call.epilogue.context = &context;
    call.epilogue.consume = [](void* user, const void* block, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
      auto* context = static_cast<Context*>(user);
      for (int64_t r = row0; r < row0 + rows; ++r) {
        for (int64_t j = col0; j < col0 + cols; ++j) {
          context->got[r * context->n + j] += static_cast<const float*>(block)[r * context->n + j];
        }
      }
    };
    for (ThreadPool* pool : {&one_, &two_, &Five()}) {
      std::fill_n(got.data(), m * n, 0.0f);
      ASSERT_TRUE(ReservedGemm(*kernels_, call, *pool).ok());
      for (int64_t i = 0; i < m * n; ++i) ASSERT_EQ(got[i], want[i]) << i;
    }
  }
}

// The same sums in f32, narrowed; also to an epilogue that consumes them. One block of K, odd and transposed, and several.
TEST_P(Gemm, RoundsSumsToBF16OnceAndAsElsewhere) {
  for (const auto& [m, k, n] : {Shape{130, 60, 150}, Shape{37, 131, 77}, Shape{64, 300, 10}, Shape{65, 897, 40}}) {
    for (const bool transposed : {false, true}) {
      std::mt19937 random(6);
      Operand<BF16> a(m * k), b(k * n), c(m * n), got(m * n);
      Operand<float> sums(m * n);
      constexpr float kAwkward[] = {1, 1.0078125f, -3, 0x1p-8f, -0x1.02p-9f, 0x1p-120f, -0x1.8p-126f, 0x1p-60f, 0};
      for (int64_t i = 0; i < a.size(); ++i) a[i] = {NarrowBF16(kAwkward[random() % std::size(kAwkward)])};
      for (int64_t i = 0; i < b.size(); ++i) b[i] = {NarrowBF16(kAwkward[random() % std::size(kAwkward)])};
      a[m * k / 2] = {0x7F80};
      a[m * k - 1] = {0x7FC1};
      GemmCall call;
      call.input = DType::kBF16;
      call.m = m;
      call.k = k;
      call.n = n;
      call.a = {a.data(), transposed ? 1 : k, transposed ? m : 1, {}};
      call.b = {b.data(), n, 1, {}};
      call.c = sums.data();
      ASSERT_TRUE(kernels_->Gemm(call, two_).ok());
      call.c = c.data();
      call.output = DType::kBF16;
      struct Context {
        uint16_t* got;
        int64_t n;
      } context{reinterpret_cast<uint16_t*>(got.data()), n};
      call.epilogue.context = &context;
      for (const bool consumes : {false, true}) {
        if (consumes) {
          call.epilogue.consume = [](void* user, const void* block, int64_t row0, int64_t rows, int64_t col0,
                                     int64_t cols) {
            auto* context = static_cast<Context*>(user);
            for (int64_t r = row0; r < row0 + rows; ++r) {
              for (int64_t j = col0; j < col0 + cols; ++j) {
                context->got[r * context->n + j] = static_cast<const uint16_t*>(block)[r * context->n + j];
              }
            }
          };
        }
        ASSERT_TRUE(ReservedGemm(*kernels_, call, two_).ok());
        const Operand<BF16>& result = consumes ? got : c;
        for (int64_t i = 0; i < m * n; ++i) {
          if (std::isnan(sums[i])) {
            ASSERT_TRUE(std::isnan(result.At(i))) << "at " << i;
          } else {
            ASSERT_EQ(result[i].bits, NarrowBF16(sums[i])) << "at " << i << " of " << sums[i];
          }
        }
      }
    }
  }
}

// [k, m] of the first factor, [k, n] of the common one: as Gemm and an addition behind it, wherever the sums so far lie.
TEST_P(Gemm, AddsProductsOfACommonFactorToWhatIsThere) {
  struct Case {
    std::vector<int64_t> rows;
    int64_t k, n;
    bool transposed;
  };
  for (const Case& at : {Case{{64, 64}, 32, 256, true}, Case{{13, 100, 9}, 7, 70, false}, Case{{200}, 64, 33, true}, Case{{12, 30}, 1, 130, false}}) {
    SCOPED_TRACE(testing::Message() << at.rows.size() << " of " << at.k << " x " << at.n);
    std::mt19937 random(11);
    std::uniform_real_distribution<float> number(-1, 1);
    Operand<float> b(at.k * at.n);
    for (int64_t i = 0; i < b.size(); ++i) b[i] = number(random);
    const int64_t stride = at.n + 3;
    std::vector<Operand<float>> a, before, want, have;
    std::vector<SumCall> calls;
    for (const int64_t m : at.rows) {
      for (auto* list : {&before, &want, &have}) list->emplace_back(m * stride);
      a.emplace_back(m * at.k);
      for (int64_t i = 0; i < m * at.k; ++i) a.back()[i] = number(random);
      for (int64_t i = 0; i < m * stride; ++i) before.back()[i] = number(random);
    }
    for (size_t i = 0; i < at.rows.size(); ++i) {
      GemmCall& call = calls.emplace_back().product;
      call.m = at.rows[i];
      call.k = at.k;
      call.n = at.n;
      call.a = {a[i].data(), at.transposed ? 1 : at.k, at.transposed ? call.m : 1, {}};
      call.b = {b.data(), at.n, 1, {}};
      ASSERT_TRUE(AddsSums(kernels_->target(), call));
      Operand<float> sums(call.m * at.n);
      call.c = sums.data();
      ASSERT_TRUE(kernels_->Gemm(call, one_).ok());
      for (int64_t r = 0; r < call.m; ++r) {
        for (int64_t j = 0; j < at.n; ++j) want[i][r * stride + j] = before[i][r * stride + j] + sums[r * at.n + j];
      }
      call.c_row_stride = stride;
    }
    for (ThreadPool* pool : {&one_, &two_, &Five()}) {
      for (const bool in_place : {false, true}) {
        for (size_t i = 0; i < at.rows.size(); ++i) {
          have[i].Poison();
          if (in_place) std::memcpy(have[i].data(), before[i].data(), static_cast<size_t>(have[i].size()) * sizeof(float));
          calls[i].before = in_place ? have[i].data() : before[i].data();
          calls[i].product.c = have[i].data();
        }
        const absl::Status status = Reserved(
            *pool, [&](int, ScratchNeeds& needs) { return kernels_->PrepareSums(calls, needs); },
            [&](ThreadPool& p) { return kernels_->AddSums(calls, p); });
        ASSERT_TRUE(status.ok()) << status;
        for (size_t i = 0; i < at.rows.size(); ++i) {
          for (int64_t r = 0; r < at.rows[i]; ++r) {
            EXPECT_EQ(std::memcmp(&have[i][r * stride], &want[i][r * stride], static_cast<size_t>(at.n) * sizeof(float)), 0)
                << i << ", row " << r << ", " << pool->threads() << " threads";
          }
          EXPECT_TRUE(have[i].GuardsHold());
        }
      }
    }
  }
}

// Columns of A that lie near are read in place, others packed; of several blocks of K, whose last is short, the next one is asked for.
TEST_P(Gemm, ColumnsOfAHaveTheSameBitsInPlaceAndPacked) {
  constexpr int64_t kM = 53, kN = 150, kK = 1000, kFar = 2100;  // more than 8 KiB apart
  std::mt19937 random(3);
  Operand<float> near(kM * kK), far(kFar * kK), b(kN * kK), c(kM * kN);
  near.Randomize(random);
  b.Randomize(random);
  for (int64_t k = 0; k < kK; ++k) std::copy_n(near.data() + k * kM, kM, far.data() + k * kFar);
  GemmCall call;
  call.m = kM;
  call.n = kN;
  call.k = kK;
  call.a = {near.data(), 1, kM};
  call.b = {b.data(), kN, 1};
  call.c = c.data();
  ASSERT_TRUE(ReservedGemm(*kernels_, call, one_).ok());
  for (int64_t i : {int64_t{0}, kN + 1, kM * kN - 1}) {
    double sum = 0;
    for (int64_t k = 0; k < kK; ++k) sum += near.At(k * kM + i / kN) * b.At(k * kN + i % kN);
    EXPECT_NEAR(c.At(i), sum, 1e-3);
  }
  for (ThreadPool* const pool : {&two_, &Five()}) {
    for (const auto& [data, stride] : {std::pair(near.data(), kM), std::pair(far.data(), kFar)}) {
      Operand<float> again(kM * kN);
      call.a = {data, 1, stride};
      call.c = again.data();
      ASSERT_TRUE(ReservedGemm(*kernels_, call, *pool).ok());
      EXPECT_TRUE(again.SameBits(c) && again.GuardsHold()) << stride;
    }
  }
}

TEST_P(Gemm, GivesZerosForAnEmptySum) {
  float c[6] = {1, 2, 3, 4, 5, 6};
  GemmCall call;
  call.m = 2;
  call.n = 3;
  call.a.row_stride = 1;
  call.b.row_stride = 3;
  call.c = c;
  ASSERT_TRUE(kernels_->Gemm(call, one_).ok());
  for (float value : c) EXPECT_EQ(value, 0.0f);
}

TEST_P(Gemm, SaysWhatIsWrongWithACall) {
  GemmCall call;
  call.m = -1;
  EXPECT_EQ(kernels_->Gemm(call, one_).message(), "matrix product with negative sizes -1 x 0 x 0");
  call.m = call.n = call.k = 1;
  call.input = DType::kC64;
  const absl::Status status = kernels_->Gemm(call, one_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "the CPU backend has no matrix product from c64 to f32");
}

WEFT_EVERY_ISA(Gemm);

}  // namespace
}  // namespace weft::cpu
