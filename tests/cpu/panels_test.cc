// Weights that come to launch after launch stay packed, for as long as their buffers are what they were.
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/executable.h"
#include "src/backends/cpu/kernels/tiles/pack.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/cpu_under_test.h"

namespace weft::cpu {
namespace {

using ir::Builder;
using ir::Type;
using ir::Value;

constexpr int64_t kRows = 32, kDepth = 600, kColumns = 300;
constexpr int64_t kLeastBytes = kDepth * kColumns * 4;  // of the weight and of its panel

struct Device {
  explicit Device(int64_t memory_limit = 0)
      : backend(*test::NewCpuBackend({.threads = 2, .services = {.budget = std::make_shared<MemoryBudget>(memory_limit)}})) {}
  std::unique_ptr<CpuBackend> backend;

  std::unique_ptr<Executable> Compile(Ref<const ir::Function> function, const std::string& isa = "") {
    const auto module = Prepared(*backend, std::move(function));
    EXPECT_TRUE(module.ok()) << module.status();
    auto compiled = backend->Compile(*module, {{.isa = isa}});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return *std::move(compiled);
  }
  Ref<Buffer> Of(const Dims& dims, const std::vector<float>& values) {
    auto buffer = backend->ToDevice(backend->devices()[0], DType::kF32, dims, std::as_bytes(std::span(values)));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }
  Ref<Buffer> Filled(const Dims& dims, float value) { return Of(dims, std::vector<float>(CountOf(dims), value)); }
  Ref<Buffer> X(float value = 1) { return Filled({kRows, kDepth}, value); }
  Ref<Buffer> W(float value = 1) { return Filled({kDepth, kColumns}, value); }
};

// x w, or, of a transposed w, x w^T.
Ref<const ir::Function> Product(int64_t rows = kRows, bool transposed = false, DType dtype = DType::kF32) {
  Builder b;
  const Value x = test::NewParameter(Type::Tensor(dtype, {rows, kDepth}));
  const Value w = test::NewParameter(Type::Tensor(dtype, transposed ? Dims{kColumns, kDepth} : Dims{kDepth, kColumns}));
  const Value y = ops::BatchMatmul(b, x, w, false, transposed);
  EXPECT_TRUE(b.ok()) << b.status();
  return ir::Function::Create("product", {x, w}, {y});
}

Ref<Buffer> Launch(Executable& program, const std::vector<Ref<Buffer>>& buffers, const std::vector<uint8_t>& donated = {}) {
  DeviceArguments arguments;
  arguments.buffers = buffers;
  arguments.donated = donated;
  auto results = program.Execute({&arguments, 1});
  EXPECT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE((*results)[0].done->Wait().ok()) << (*results)[0].done->status();
  return (*results)[0].buffers[0];
}
void ExpectAll(const Ref<Buffer>& buffer, float value) {
  const float* const y = static_cast<const float*>(buffer->host_data());
  for (int64_t i = 0; i < buffer->count(); ++i) ASSERT_EQ(y[i], value) << i;
}

std::string BytesOf(Device& device, Buffer& buffer, int64_t offset, int64_t count) {
  std::string bytes(static_cast<size_t>(count), '?');
  const absl::Status status =
      device.backend->FromDevice(buffer, offset, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

TEST(KeptPanels, ArePackedByTheSecondLaunchAndServeAllThatFollow) {
  for (const std::string& isa : TestIsas()) {
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(isa);
      Device device;
      const auto program = device.Compile(Product(kRows, transposed), isa);
      std::vector<float> x(kRows * kDepth), w(kDepth * kColumns);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.37f;
      for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 23) * 0.11f - 1;
      const Ref<Buffer> xs = device.Of({kRows, kDepth}, x);
      const Ref<Buffer> ws = device.Of(transposed ? Dims{kColumns, kDepth} : Dims{kDepth, kColumns}, w);
      const int64_t in_use = device.backend->memory_stats(nullptr).bytes_in_use;
      const Ref<Buffer> first = Launch(*program, {xs, ws});
      EXPECT_EQ(device.backend->panels().made(), 0);
      for (int launch = 0; launch < 3; ++launch) {
        const Ref<Buffer> again = Launch(*program, {xs, ws});
        EXPECT_EQ(device.backend->panels().made(), 1) << launch;
        EXPECT_EQ(std::memcmp(again->host_data(), first->host_data(), first->bytes()), 0) << launch;
      }
      EXPECT_GE(device.backend->panels().bytes(), kLeastBytes);
      EXPECT_LT(device.backend->memory_stats(nullptr).bytes_in_use, in_use + kLeastBytes / 2);  // and nowhere else
    }
  }
}

TEST(KeptPanels, GoWithTheirBuffer) {
  Device device;
  const auto program = device.Compile(Product());
  Ref<Buffer> w = device.W();
  for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), w}), kDepth);
  EXPECT_GE(device.backend->panels().bytes(), kLeastBytes);
  w = Ref<Buffer>();
  EXPECT_EQ(device.backend->panels().bytes(), 0);
}

TEST(KeptPanels, AreSharedByProgramsThatPackAlike) {
  Device device;
  const auto program = device.Compile(Product()), taller = device.Compile(Product(40));
  const Ref<Buffer> w = device.W();
  for (int i = 0; i < 2; ++i) {
    ExpectAll(Launch(*program, {device.X(), w}), kDepth);
    ExpectAll(Launch(*taller, {device.Filled({40, kDepth}, 2), w}), 2 * kDepth);
  }
  EXPECT_EQ(device.backend->panels().made(), 1);
}

// One context may have programs for several instruction sets, which lay the same weight out differently.
TEST(KeptPanels, AreOfOneInstructionSet) {
  Device device;
  std::vector<uint16_t> x(kRows * kDepth, NarrowBF16(1)), w(kDepth * kColumns);
  for (size_t i = 0; i < w.size(); ++i) w[i] = NarrowBF16(static_cast<float>(i % kColumns % 7));
  const auto of = [&](const Dims& dims, const std::vector<uint16_t>& values) {
    return *device.backend->ToDevice(device.backend->devices()[0], DType::kBF16, dims, std::as_bytes(std::span(values)));
  };
  const Ref<Buffer> xs = of({kRows, kDepth}, x), ws = of({kDepth, kColumns}, w);
  std::vector<std::string> isas = TestIsas();
  isas.emplace_back("amx-model");
  for (int order = 0; order < 2; ++order) {
    for (const std::string& isa : isas) {
      const auto program = device.Compile(Product(kRows, false, DType::kBF16), isa);
      for (int launch = 0; launch < 2; ++launch) {
        const Ref<Buffer> y = Launch(*program, {xs, ws});
        const auto* const values = static_cast<const uint16_t*>(y->host_data());
        for (int64_t i = 0; i < y->count(); ++i) {
          ASSERT_EQ(values[i], NarrowBF16(static_cast<float>(kDepth * (i % kColumns % 7)))) << isa << " at " << i;
        }
      }
    }
  }
}

// Kernels of convolutions: 1x1, moved by two, an odd number of channels in pairs, images of few channels that are padded first,
// groups, and more pixels than one image has.
TEST(KeptPanels, OfConvolutionsGiveTheSameBits) {
  struct Case {
    Dims x, w;
    int64_t stride, groups;
    bool padded = true;
  };
  const Case cases[] = {{{1, 7, 7, 96}, {1, 1, 96, 130}, 1, 1}, {{1, 14, 14, 64}, {3, 3, 64, 80}, 1, 1}, {{2, 9, 11, 48}, {3, 3, 48, 64}, 2, 1},
                        {{1, 8, 8, 33}, {3, 3, 33, 40}, 1, 1, false}, {{1, 20, 20, 3}, {7, 7, 3, 48}, 2, 1},   {{1, 6, 6, 64}, {3, 3, 32, 64}, 1, 2}};
  for (const std::string& isa : TestIsas()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Case& c : cases) {
        SCOPED_TRACE(absl::StrCat(isa, " ", NameOf(dtype), " ", DimsToString(c.x), " ", DimsToString(c.w)));
        Device device;
        const auto program_of = [&](int64_t images) {
          Builder b;
          Dims dims = c.x;
          dims[0] = images;
          const Value x = test::NewParameter(Type::Tensor(dtype, dims)), w = test::NewParameter(Type::Tensor(dtype, c.w));
          const Value y = ops::Call(b, ops::kOp_conv, {x, w}, {ir::Ints{c.stride, c.stride}, int64_t{c.padded}, {}, {}, c.groups});
          EXPECT_TRUE(b.ok()) << b.status();
          return device.Compile(ir::Function::Create("convolution", {x, w}, {y}), isa);
        };
        const auto of = [&](const Dims& dims) {
          std::vector<float> values(CountOf(dims));
          for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 23) * 0.11f - 1;
          std::vector<uint16_t> narrow;
          for (const float value : values) narrow.push_back(NarrowBF16(value));
          const bool half = dtype == DType::kBF16;
          return *device.backend->ToDevice(device.backend->devices()[0], dtype, dims,
                                           half ? std::as_bytes(std::span(narrow)) : std::as_bytes(std::span(values)));
        };
        const auto program = program_of(c.x[0]), more = program_of(c.x[0] + 2);
        const Ref<Buffer> x = of(c.x), w = of(c.w);
        Dims dims = c.x;
        dims[0] += 2;
        const Ref<Buffer> xs = of(dims);
        const Ref<Buffer> first = Launch(*program, {x, w});
        EXPECT_EQ(device.backend->panels().made(), 0);
        // A kernel of bf16 that is widened first is not kept.
        const int64_t made = dtype == DType::kF32 || TargetFromName(isa)->has_bf16_dot ? 1 : 0;
        for (int launch = 0; launch < 2; ++launch) {
          const Ref<Buffer> again = Launch(*program, {x, w});
          EXPECT_EQ(std::memcmp(again->host_data(), first->host_data(), first->bytes()), 0);
        }
        const Ref<Buffer> kept = Launch(*more, {xs, w});
        EXPECT_EQ(device.backend->panels().made(), made);
        EXPECT_EQ(device.backend->panels().twice(), 0);  // all taps are in it: it lives packed
        const Ref<Buffer> like = of(c.w);
        const auto size = static_cast<int64_t>(like->bytes());
        const std::string bytes(static_cast<const char*>(like->host_data()), static_cast<size_t>(size));
        EXPECT_EQ(BytesOf(device, *w, 0, size), bytes);
        EXPECT_EQ(BytesOf(device, *w, 40, size / 2), bytes.substr(40, static_cast<size_t>(size / 2)));
        EXPECT_EQ(std::memcmp(w->host_data(), bytes.data(), bytes.size()), 0);
        const Ref<Buffer> packed = Launch(*more, {xs, of(c.w)});
        EXPECT_EQ(std::memcmp(kept->host_data(), packed->host_data(), packed->bytes()), 0);
      }
    }
  }
}

// Kernels that lie as PyTorch's do, [out, in, taps]: packed from there, with the bits of those that lie the other way round; and back.
TEST(KeptPanels, OfKernelsThatLieOutputsFirstGiveTheSameBits) {
  struct Case {
    Dims x, w;  // w: [taps, taps, in, out]
    int64_t stride, groups;
  };
  const Case cases[] = {{{1, 7, 7, 96}, {1, 1, 96, 130}, 1, 1}, {{1, 14, 14, 64}, {3, 3, 64, 80}, 1, 1}, {{2, 9, 11, 33}, {3, 3, 33, 64}, 2, 1},
                        {{1, 20, 20, 3}, {7, 7, 3, 48}, 2, 1},   {{1, 6, 6, 64}, {3, 3, 32, 64}, 1, 2},   {{1, 8, 8, 32}, {3, 3, 1, 32}, 1, 32}};
  for (const std::string& isa : TestIsas()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Case& c : cases) {
        SCOPED_TRACE(absl::StrCat(isa, " ", NameOf(dtype), " ", DimsToString(c.x), " ", DimsToString(c.w)));
        Device device;
        const int64_t taps = c.w[0], in = c.w[2], out = c.w[3];
        const Dims turned = {out, in, taps, taps};
        const auto program_of = [&](const Dims& dims, const ir::Ints& kernel) {
          Builder b;
          const Value x = test::NewParameter(Type::Tensor(dtype, c.x)), w = test::NewParameter(Type::Tensor(dtype, dims));
          const ir::Ints pads(4, taps / 2), ones = {1, 1}, images = {0, 3, 1, 2};
          const Value y = ops::Call(b, ops::kOp_convolution, {x, w},
                                    {ir::Ints{c.stride, c.stride}, pads, ones, ones, images, kernel, images, c.groups});
          EXPECT_TRUE(b.ok()) << b.status();
          return device.Compile(ir::Function::Create("convolution", {x, w}, {y}), isa);
        };
        const auto of = [&](const Dims& dims, const std::vector<float>& values) {
          std::vector<uint16_t> narrow;
          for (const float value : values) narrow.push_back(NarrowBF16(value));
          const bool half = dtype == DType::kBF16;
          return *device.backend->ToDevice(device.backend->devices()[0], dtype, dims,
                                           half ? std::as_bytes(std::span(narrow)) : std::as_bytes(std::span(values)));
        };
        std::vector<float> pixels(CountOf(c.x)), plain(CountOf(c.w)), other(CountOf(c.w));
        for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i % 23) * 0.11f - 1;
        for (int64_t t = 0; t < taps * taps; ++t) {
          for (int64_t i = 0; i < in; ++i) {
            for (int64_t o = 0; o < out; ++o) {
              const float value = static_cast<float>((t * 31 + i * 7 + o * 3) % 29) * 0.13f - 1;
              plain[(t * in + i) * out + o] = other[(o * in + i) * taps * taps + t] = value;
            }
          }
        }
        const auto there = program_of(c.w, {2, 3, 0, 1}), here = program_of(turned, {1, 0, 2, 3});
        const Ref<Buffer> x = of(c.x, pixels), w = of(turned, other);
        const Ref<Buffer> wanted = Launch(*there, {x, of(c.w, plain)});
        for (int launch = 0; launch < 3; ++launch) {
          const Ref<Buffer> y = Launch(*here, {x, w});
          ASSERT_EQ(std::memcmp(y->host_data(), wanted->host_data(), wanted->bytes()), 0) << launch;
        }
        const bool keeps = c.groups < 32 && (dtype == DType::kF32 || TargetFromName(isa)->has_bf16_dot);
        EXPECT_EQ(device.backend->panels().made(), keeps ? 1 : 0);
        const Ref<Buffer> like = of(turned, other);
        const auto size = static_cast<int64_t>(like->bytes());
        EXPECT_EQ(BytesOf(device, *w, 0, size), std::string(static_cast<const char*>(like->host_data()), static_cast<size_t>(size)));
      }
    }
  }
}

// A step's new weight lies where the old one lay.
TEST(KeptPanels, AreNotTakenForThoseOfAnotherBufferAtTheSameAddress) {
  Device device;
  const auto program = device.Compile(Product());
  Builder b;
  const Value p = test::NewParameter(Type::Tensor(DType::kF32, {kDepth, kColumns}));
  std::vector<ir::ParameterInfo> infos(1);
  infos[0].donated_to = 0;
  const auto step = device.Compile(ir::Function::Create("step", {p}, {ops::Add(b, p, 1.0)}, infos));
  Ref<Buffer> w = device.W();
  for (int value = 1; value < 4; ++value) {
    for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), w}), static_cast<float>(value * kDepth));
    EXPECT_EQ(device.backend->panels().made(), value);
    const void* const address = w->host_data();
    w = Launch(*step, {w}, {1});
    EXPECT_EQ(w->host_data(), address);
  }
}

TEST(KeptPanels, AreNotMadeOfWhatComesOnceOrMayChange) {
  Device device;
  const auto program = device.Compile(Product());
  for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), device.W()}), kDepth);
  const Ref<Buffer> lent = device.W();
  lent->Hold();
  for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), lent}), kDepth);
  lent->Unhold();
  std::vector<float> foreign(kDepth * kColumns, 1);
  const Ref<Buffer> adopted =
      *device.backend->Adopt(device.backend->devices()[0], DType::kF32, Dims{kDepth, kColumns}, foreign.data(), nullptr);
  for (int i = 1; i < 4; ++i) {
    std::fill(foreign.begin(), foreign.end(), static_cast<float>(i));
    ExpectAll(Launch(*program, {device.X(), adopted}), static_cast<float>(i * kDepth));
  }
  EXPECT_EQ(device.backend->panels().made(), 0);
}

TEST(KeptPanels, GiveWayToTensorsThatFindNoMemory) {
  Device device(16 * kLeastBytes);
  const auto program = device.Compile(Product());
  const Ref<Buffer> w = device.W();
  w->host_data();  // somebody may look at it from now on
  for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), w}), kDepth);
  EXPECT_GE(device.backend->panels().twice(), kLeastBytes);
  std::vector<Ref<Buffer>> tensors;
  while (device.backend->panels().bytes() > 0 && tensors.size() < 16) tensors.push_back(device.W());
  EXPECT_EQ(device.backend->panels().bytes(), 0);
  tensors.clear();
  // And are not made again where they have no room.
  for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), w}), kDepth);
  EXPECT_EQ(device.backend->panels().made(), 1);
}

// Every bit of it, NaN's too, wherever one begins to read; and by whom.
TEST(WeightsThatLivePacked, ComeBackAsTheyWere) {
  std::vector<std::string> isas = TestIsas();
  isas.emplace_back("amx-model");
  for (const std::string& isa : isas) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(absl::StrCat(isa, " ", NameOf(dtype), transposed ? " transposed" : ""));
        Device device;
        const auto program = device.Compile(Product(kRows, transposed, dtype), isa);
        const int64_t element = BytesOf(dtype);
        std::string x(kRows * kDepth * element, '\1'), w(kDepth * kColumns * element, '\0');
        uint64_t state = 1;
        for (char& byte : w) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          byte = static_cast<char>(state >> 56);
        }
        const auto of = [&](const Dims& dims, const std::string& bytes) {
          return *device.backend->ToDevice(device.backend->devices()[0], dtype, dims, std::as_bytes(std::span(bytes)));
        };
        const Ref<Buffer> xs = of({kRows, kDepth}, x);
        const Ref<Buffer> ws = of(transposed ? Dims{kColumns, kDepth} : Dims{kDepth, kColumns}, w);
        const auto plain = [&] {
          return device.backend->memory_stats(nullptr).bytes_in_use - device.backend->panels().bytes() >
                 static_cast<int64_t>(w.size());
        };
        for (int i = 0; i < 2; ++i) Launch(*program, {xs, ws});
        ASSERT_FALSE(plain());
        EXPECT_EQ(device.backend->panels().twice(), 0);
        const auto all = static_cast<int64_t>(w.size());
        EXPECT_EQ(BytesOf(device, *ws, 0, all), w);
        for (const int64_t first : {int64_t{0}, element, 17 * element, kColumns * element, kDepth * element * 3 + element, all - element}) {
          for (const int64_t count : {element, 13 * element, 4 * kDepth * element + element}) {
            const int64_t most = std::min(count, all - first);
            EXPECT_EQ(BytesOf(device, *ws, first, most), w.substr(first, most)) << first << " " << count;
          }
        }
        EXPECT_FALSE(plain());  // what reads bytes leaves it packed
        EXPECT_EQ(BytesOf(device, *ws, 1, all - 2), w.substr(1, w.size() - 2));
        EXPECT_EQ(std::memcmp(ws->host_data(), w.data(), w.size()), 0);
        EXPECT_TRUE(plain());
        for (int i = 0; i < 3; ++i) Launch(*program, {xs, ws});
        EXPECT_TRUE(plain());  // who holds its address may go on reading
        EXPECT_EQ(std::memcmp(ws->host_data(), w.data(), w.size()), 0);
      }
    }
  }
}

// w * 2, which reads it as it lies.
Ref<const ir::Function> Doubled() {
  Builder b;
  const Value w = test::NewParameter(Type::Tensor(DType::kF32, {kDepth, kColumns}));
  return ir::Function::Create("doubled", {w}, {ops::Mul(b, w, 2.0)});
}

TEST(WeightsThatLivePacked, AreUnpackedOnceForProgramsThatReadThemPlain) {
  Device device;
  const auto program = device.Compile(Product()), plain = device.Compile(Doubled());
  const Ref<Buffer> w = device.W(3);
  for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), w}), 3 * kDepth);
  EXPECT_EQ(device.backend->panels().twice(), 0);
  for (int i = 0; i < 3; ++i) {
    ExpectAll(Launch(*plain, {w}), 6);
    ExpectAll(Launch(*program, {device.X(), w}), 3 * kDepth);
    EXPECT_GE(device.backend->panels().twice(), kLeastBytes) << i;  // stays both: they take turns
  }
  EXPECT_EQ(device.backend->panels().made(), 1);
}

TEST(WeightsThatLivePacked, DoNotWhereTheProgramReadsThemPlainToo) {
  Device device;
  Builder b;
  const Value x = test::NewParameter(Type::Tensor(DType::kF32, {kRows, kDepth}));
  const Value w = test::NewParameter(Type::Tensor(DType::kF32, {kDepth, kColumns}));
  const Value y = ops::BatchMatmul(b, x, w, false, false);
  const auto program = device.Compile(ir::Function::Create("both", {x, w}, {y, ops::Mul(b, w, 2.0)}));
  const Ref<Buffer> ws = device.W(3);
  for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), ws}), 3 * kDepth);
  EXPECT_GE(device.backend->panels().twice(), kLeastBytes);
}

// Tied embeddings: rows of the matrix that the last product multiplies by, before the product, and after it.
TEST(WeightsThatLivePacked, GiveRowsOutOfTheirPanels) {
  constexpr int64_t kWords = 4;
  for (const bool after : {false, true}) {
    for (const std::string& isa : TestIsas()) {
      SCOPED_TRACE(absl::StrCat(isa, after ? " after" : " before"));
      Device device;
      Builder b;
      const Value x = test::NewParameter(Type::Tensor(DType::kF32, {kRows, kDepth}));
      const Value w = test::NewParameter(Type::Tensor(DType::kF32, {kColumns, kDepth}));
      Value ids = test::NewParameter(Type::Tensor(DType::kI32, {kWords}));
      const Value parameter = ids;
      const Value y = ops::BatchMatmul(b, x, w, false, true);
      if (after) ids = ops::Add(b, ids, ops::Convert(b, ops::Reshape(b, ops::Slice(b, y, {0, 0}, {1, kWords}, {1, 1}), {kWords}), DType::kI32));
      const Value rows = ops::Call(b, ops::kOp_take, {w, ids}, {int64_t{0}});
      ASSERT_TRUE(b.ok()) << b.status();
      const auto program = device.Compile(ir::Function::Create("tied", {x, w, parameter}, {rows, y}), isa);
      std::vector<float> values(kColumns * kDepth);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1013) * 0.37f;
      const Ref<Buffer> ws = device.Of({kColumns, kDepth}, values), xs = device.X(0);
      const std::vector<int32_t> chosen = {0, 299, 17, 150};
      const Ref<Buffer> at =
          *device.backend->ToDevice(device.backend->devices()[0], DType::kI32, Dims{kWords}, std::as_bytes(std::span(chosen)));
      for (int launch = 0; launch < 4; ++launch) {
        const Ref<Buffer> taken = Launch(*program, {xs, ws, at});
        for (int64_t i = 0; i < kWords; ++i) {
          EXPECT_EQ(std::memcmp(static_cast<const float*>(taken->host_data()) + i * kDepth, &values[chosen[i] * kDepth], kDepth * 4), 0) << launch;
        }
      }
      EXPECT_GE(device.backend->panels().bytes(), kLeastBytes);
      EXPECT_EQ(device.backend->panels().twice(), 0);
    }
  }
}

// Nobody waits: launches that read it plain are on their way when others pack it, and the other way round.
TEST(WeightsThatLivePacked, AreThereForLaunchesOnTheirWay) {
  for (int round = 0; round < 8; ++round) {
    Device device;
    const std::shared_ptr<Executable> program = device.Compile(Product()), plain = device.Compile(Doubled());
    const Ref<Buffer> w = device.W(3), x = device.X();
    const auto submit = [&](Executable& one, const std::vector<Ref<Buffer>>& buffers) {
      DeviceArguments arguments;
      arguments.buffers = buffers;
      auto results = one.Execute({&arguments, 1});
      EXPECT_TRUE(results.ok()) << results.status();
      return (*results)[0].buffers[0];
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::vector<Ref<Buffer>> products, doubled;
        for (int i = 0; i < 6; ++i) {
          products.push_back(submit(*program, {x, w}));
          if (i >= round && t == 1) doubled.push_back(submit(*plain, {w}));
          if (t == 2 && i % 2 == 1) {
            EXPECT_EQ(BytesOf(device, *w, 0, 4), std::string("\0\0@@", 4));
          }
        }
        for (const Ref<Buffer>& y : products) {
          EXPECT_TRUE(y->ready().Wait().ok());
          ExpectAll(y, 3 * kDepth);
        }
        for (const Ref<Buffer>& y : doubled) {
          EXPECT_TRUE(y->ready().Wait().ok());
          ExpectAll(y, 6);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// It is in nobody's way: not given up with the panels that save time alone.
TEST(WeightsThatLivePacked, AreKeptWhereMemoryIsShort) {
  Device device(16 * kLeastBytes);
  const auto program = device.Compile(Product()), plain = device.Compile(Doubled());
  const Ref<Buffer> w = device.W(3);
  for (int i = 0; i < 3; ++i) ExpectAll(Launch(*program, {device.X(), w}), 3 * kDepth);
  ASSERT_EQ(device.backend->panels().twice(), 0);
  std::vector<Ref<Buffer>> tensors;
  while (true) {
    const std::vector<float> zeros(kDepth * kColumns);
    auto more = device.backend->ToDevice(device.backend->devices()[0], DType::kF32, Dims{kDepth, kColumns},
                                         std::as_bytes(std::span(zeros)));
    if (!more.ok()) break;
    tensors.push_back(*std::move(more));
  }
  EXPECT_GE(device.backend->panels().bytes(), kLeastBytes);
  DeviceArguments arguments;
  std::vector<Ref<Buffer>> buffers = {w};
  arguments.buffers = buffers;
  EXPECT_EQ(plain->Execute({&arguments, 1}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(BytesOf(device, *w, 0, 4), std::string("\0\0@@", 4));
  tensors.clear();
  ExpectAll(Launch(*plain, {w}), 6);
  ExpectAll(Launch(*program, {device.X(), w}), 3 * kDepth);
}

TEST(KeptPanels, ServeManyThreadsOfTwoDevices) {
  Device devices[2];
  std::vector<std::thread> threads;
  for (Device& device : devices) {
    const std::shared_ptr<Executable> program = device.Compile(Product());
    const Ref<Buffer> w = device.W(3);
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&device, program, w, t] {
        for (int i = 0; i < 6; ++i) {
          ExpectAll(Launch(*program, {device.X(), w}), 3 * kDepth);
          const Ref<Buffer> own = device.W(static_cast<float>(t));
          for (int j = 0; j < 2; ++j) ExpectAll(Launch(*program, {device.X(), own}), static_cast<float>(t * kDepth));
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const Device& device : devices) {
    EXPECT_EQ(device.backend->panels().made(), 1 + 2 * 6);
    EXPECT_EQ(device.backend->panels().bytes(), 0);
  }
}

}  // namespace
}  // namespace weft::cpu
