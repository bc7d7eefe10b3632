// AMX's tiles: the model of the instructions against what Intel's manual says, the instructions' encodings against the same, and
// the drivers' corners beyond what every instruction set is tested with. Where there are tiles, they must give the model's bits.
#include "src/backends/cpu/jit/amx_model.h"

#include <fstream>
#include <set>
#include <sstream>

#include "src/backends/cpu/kernels/tiles/amx_micro.h"
#include "tests/kernels/kernels_support.h"

namespace weft::cpu {
namespace {

uint16_t BF16Of(float value) { return NarrowBF16(value); }

// One tdpbf16ps of a row of A (pairs side by side) with a column of B's, onto `c`.
class ModelDot {
 public:
  ModelDot() {
    WeftTileConfig config;
    config.palette = 1;
    for (int t = 0; t < 3; ++t) config.rows[t] = 16, config.row_bytes[t] = 64;
    weft_amx_model_loadconfig(&config);
  }
  ~ModelDot() { weft_amx_model_release(); }

  float operator()(float c, const std::vector<float>& a, const std::vector<float>& b) {
    float sums[16][16] = {};
    uint16_t rows[16][32] = {}, pairs[16][32] = {};
    sums[5][7] = c;
    for (size_t k = 0; k < a.size(); ++k) {
      rows[5][k] = BF16Of(a[k]);
      pairs[k / 2][7 * 2 + k % 2] = BF16Of(b[k]);
    }
    weft_amx_model_load(0, sums, 64);
    weft_amx_model_load(1, rows, 64);
    weft_amx_model_load(2, pairs, 64);
    weft_amx_model_dp(0, 1, 2);
    weft_amx_model_store(0, sums, 64);
    return sums[5][7];
  }
};

TEST(AmxModel, SumsEvenAndOddElementsApartAndAddsThemToTheTileLast) {
  ModelDot dot;
  const float big = 0x1p24f;
  EXPECT_EQ(dot(0, {1, 0, big, 0, -big, 0}, {1, 1, 1, 1, 1, 1}), 0);        // in the order of K, rounded each time
  EXPECT_EQ(dot(0, {big, 1, -big, 0}, {1, 1, 1, 1}), 1);                    // the odd sum does not meet the even one
  EXPECT_EQ(dot(1, {big, 0, -big, 0}, {1, 1, 1, 1}), 1);                    // nor the tile before the end
  EXPECT_EQ(dot(1, {big, 0}, {1, 1}), big);                                 // to nearest, ties to even
  EXPECT_EQ(dot(3, {big, 0}, {1, 1}), big + 4);
  EXPECT_EQ(dot(0, {1 + 0x1p-7f, 0, -1, 0}, {1 + 0x1p-7f, 0, 1 + 0x1p-6f, 0}), 0x1p-14f);  // products are not rounded
}

TEST(AmxModel, TakesDenormalsForZerosAndFlushesThem) {
  ModelDot dot;
  const float least = 0x1p-126f;
  EXPECT_EQ(dot(0, {0x1p-127f}, {0x1p100f}), 0);             // an operand
  EXPECT_EQ(dot(0, {least}, {0x1p100f}), 0x1p-26f);
  EXPECT_EQ(dot(0x1p-127f, {least}, {1}), least);            // the tile's
  EXPECT_EQ(dot(0, {0x1p-70f}, {0x1p-60f}), 0);              // a product
  EXPECT_EQ(dot(0, {1.5f * least, 0, -least, 0}, {1, 1, 1, 1}), 0);  // a sum on its way
  EXPECT_EQ(dot(-least, {1.5f * least}, {1}), 0);            // the result
  EXPECT_TRUE(std::signbit(dot(least, {-1.5f * least}, {1})));
  // least - 2^-151 rounds up to `least` only because denormals are coarse: to 24 bits it is below, and tiny.
  EXPECT_EQ(dot(0, {least, 0, -0x1p-100f, 0}, {1, 1, 0x1p-51f, 1}), least);
  EXPECT_EQ(dot(0, {least, 0, -0x1.8p-100f, 0}, {1, 1, 0x1p-51f, 1}), 0);
  EXPECT_TRUE(std::isnan(dot(0, {INFINITY}, {0})));
  EXPECT_EQ(dot(1, {INFINITY}, {2}), INFINITY);
}

// One instruction on three tiles of random bytes, the ends of the types often among them.
template <typename A, typename B>
void ExpectBytesMultiplied(void (*dot)(int32_t, int32_t, int32_t)) {
  const ModelDot configured;
  std::mt19937 random(7);
  A rows[16][64];
  B fours[16][64];
  uint32_t sums[16][16], got[16][16];
  const auto byte = [&] {
    const uint32_t bits = random();
    return bits % 4 == 0 ? uint8_t{0x80} : bits % 4 == 1 ? uint8_t{0x7F} : bits % 4 == 2 ? uint8_t{0xFF} : uint8_t(bits >> 8);
  };
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 64; ++j) rows[i][j] = static_cast<A>(byte()), fours[i][j] = static_cast<B>(byte());
    for (int j = 0; j < 16; ++j) sums[i][j] = j % 2 == 0 ? 0x7FFFFFFFu : static_cast<uint32_t>(random());
  }
  weft_amx_model_load(0, sums, 64);
  weft_amx_model_load(1, rows, 64);
  weft_amx_model_load(2, fours, 64);
  dot(0, 1, 2);
  weft_amx_model_store(0, got, 64);
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) {
      int64_t want = sums[m][n];
      for (int k = 0; k < 64; ++k) want += int64_t{rows[m][k]} * fours[k / 4][4 * n + k % 4];
      ASSERT_EQ(got[m][n], static_cast<uint32_t>(want)) << m << ", " << n;
    }
  }
}

TEST(AmxModel, MultipliesBytesOfEitherSignAndSumsWrap) {
  ExpectBytesMultiplied<int8_t, int8_t>(&weft_amx_model_dpbssd);
  ExpectBytesMultiplied<int8_t, uint8_t>(&weft_amx_model_dpbsud);
  ExpectBytesMultiplied<uint8_t, int8_t>(&weft_amx_model_dpbusd);
  ExpectBytesMultiplied<uint8_t, uint8_t>(&weft_amx_model_dpbuud);
}

TEST(AmxModelDeathTest, EndsWhereTheProcessorWouldRaiseAnException) {
  const auto load = [] {
    float row[16];
    weft_amx_model_load(0, row, 64);
  };
  EXPECT_DEATH(load(), "tileloadd, where AMX would raise an exception: no tiles are configured");
  const auto same = [] {
    ModelDot configured;
    weft_amx_model_dp(0, 1, 1);
  };
  EXPECT_DEATH(same(), "tdpbf16ps, where AMX would raise an exception: two of its tiles are one");
  const auto bytes = [] {
    ModelDot configured;
    weft_amx_model_dpbusd(2, 1, 2);
  };
  EXPECT_DEATH(bytes(), "tdpbusd, where AMX would raise an exception: two of its tiles are one");
}

// A machine with tiles, to compile for; it need not be this one.
CpuTarget Imagined() {
  CpuTarget target;
  target.isa = Isa::kAvx512;
  target.tiles = TileUnit::kAmx;
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.has_fma = target.has_bf16_dot = true;
  target.cpu = "x86-64-v4";
  target.features = "+amx-bf16,+amx-int8,+amx-tile,+avx512bf16";
  return target;
}

// Every instruction of the object that AMX's encodings can be, in order, by the manual's opcode tables: a three-byte VEX prefix
// of map 0F38, L and W 0, opcode 49, 4B, 5C or 5E.
std::vector<std::string> TileInstructions(const std::string& object) {
  std::vector<std::string> found;
  for (size_t i = 0; i + 5 < object.size(); ++i) {
    const auto byte = [&](size_t at) { return static_cast<unsigned>(static_cast<unsigned char>(object[i + at])); };
    if (byte(0) != 0xC4 || (byte(1) & 0x1F) != 2 || (byte(2) & 0x84) != 0) continue;
    const unsigned prefix = byte(2) & 3, source = ~(byte(2) >> 3) & 0xF, opcode = byte(3);
    const unsigned mode = byte(4) >> 6, reg = byte(4) >> 3 & 7, rm = byte(4) & 7;
    const bool memory = mode != 3, indexed = memory && rm == 4;
    const auto tile = [](unsigned number) { return " tmm" + std::to_string(number); };
    if (opcode == 0x49 && prefix == 0 && source == 0 && reg == 0 && memory) found.push_back("ldtilecfg");
    if (opcode == 0x49 && prefix == 0 && source == 0 && byte(4) == 0xC0) found.push_back("tilerelease");
    if (opcode == 0x49 && prefix == 3 && source == 0 && mode == 3 && rm == 0) found.push_back("tilezero" + tile(reg));
    if (opcode == 0x4B && prefix == 3 && source == 0 && indexed) found.push_back("tileloadd" + tile(reg));
    if (opcode == 0x4B && prefix == 1 && source == 0 && indexed) found.push_back("tileloaddt1" + tile(reg));
    if (opcode == 0x4B && prefix == 2 && source == 0 && indexed) found.push_back("tilestored" + tile(reg));
    static constexpr const char* kBytes[] = {"tdpbuud", "tdpbusd", "tdpbsud", "tdpbssd"};
    if (opcode == 0x5E && mode == 3) found.push_back(kBytes[prefix] + tile(reg) + tile(rm) + tile(source));
    if (opcode == 0x5C && prefix == 2 && mode == 3) found.push_back("tdpbf16ps" + tile(reg) + tile(rm) + tile(source));
  }
  return found;
}

// A block of 2 x 2 tiles, whose products are that instruction, in so many loops; `a_load` loads A.
void ExpectBlock(const std::vector<std::string>& got, const std::string& product, size_t loops, const std::string& a_load = "tileloadd") {
  // The two beginnings may stand in either order.
  std::vector<std::string> expected, stores;
  for (int t = 0; t < 4; ++t) {
    expected.push_back("tileloadd tmm" + std::to_string(t));
    expected.push_back("tilezero tmm" + std::to_string(t));
    stores.push_back("tilestored tmm" + std::to_string(t));
  }
  std::vector<std::string> step = {"tileloaddt1 tmm6",          "tileloaddt1 tmm7",          a_load + " tmm4",
                                   product + " tmm0 tmm4 tmm6", product + " tmm1 tmm4 tmm7", a_load + " tmm5",
                                   product + " tmm2 tmm5 tmm6", product + " tmm3 tmm5 tmm7"};
  std::sort(step.begin(), step.end());
  ASSERT_EQ(got.size(), 12 + 8 * loops);
  std::vector<std::string> starts(got.begin(), got.begin() + 8);
  std::sort(starts.begin(), starts.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(starts, expected);
  for (size_t loop = 1; loop <= loops; ++loop) {
    // No order of a step's loads and products is wrong that has each product behind its loads.
    std::vector<std::string> steps(got.begin() + 8 * loop, got.begin() + 8 * loop + 8);
    std::set<std::string> loaded;
    for (const std::string& instruction : steps) {
      if (instruction.starts_with("tileload")) loaded.insert(instruction.substr(instruction.find(' ') + 1));
      if (!instruction.starts_with(product)) continue;
      const size_t operands = product.size() + 6;
      EXPECT_TRUE(loaded.contains(instruction.substr(operands, 4)) && loaded.contains(instruction.substr(operands + 5, 4)))
          << instruction;
    }
    std::sort(steps.begin(), steps.end());
    EXPECT_EQ(steps, step);
  }
  EXPECT_EQ(std::vector<std::string>(got.end() - 4, got.end()), stores);
}

TEST(Amx, EncodesWhatTheManualSays) {
  const Jit jit(Imagined());
  const auto instructions = [&](const MicroSpec& spec) { return TileInstructions(*CompileMicro(jit, spec)); };
  EXPECT_EQ(instructions(TileBegin()), std::vector<std::string>{"ldtilecfg"});
  EXPECT_EQ(instructions(TileEnd()), std::vector<std::string>{"tilerelease"});
  // Products of bf16 stand in a loop that rounds earlier sums, and in one that does not.
  ExpectBlock(instructions(TileBlock(MicroType::kBF16Tiles, 2, 2)), "tdpbf16ps", 2);
  ExpectBlock(instructions(TileBlock(MicroType::kBF16Tiles, 2, 2, true)), "tdpbf16ps", 2, "tileloaddt1");
  ExpectBlock(instructions(TileBlock(MicroType::kI8Tiles, 2, 2)), "tdpbssd", 1);
  ExpectBlock(instructions(TileBlock(MicroType::kU8Tiles, 2, 2)), "tdpbuud", 1);
}

TEST(Amx, IsSeenWhereTheSystemListsIt) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  std::set<std::string> flags;
  while (std::getline(file, line) && !line.starts_with("flags")) {}
  std::istringstream words(line);
  for (std::string word; words >> word;) flags.insert(word);
  const bool listed = flags.contains("amx_tile") && flags.contains("amx_bf16") && flags.contains("amx_int8");
  // The kernel may still refuse tiles to this process.
  if (!listed || IsSupported(Isa::kAmx)) {
    EXPECT_EQ(IsSupported(Isa::kAmx), listed);
  }
  EXPECT_NE(TargetFor(Isa::kAmxModel)->Fingerprint(), TargetFor(BestIsa())->Fingerprint());
  EXPECT_EQ(TargetFromName("amx-model")->name(), "amx-model");
  if (!IsSupported(Isa::kAmx)) {
    EXPECT_EQ(TargetFor(Isa::kAmx).status().message(), "this processor cannot run the instruction set 'amx'; the best that it runs is '" +
                                                           std::string(NameOf(BestIsa())) + "'");
  }
}

struct Product {
  int64_t m, k, n;
  bool narrow = false;
  int64_t gap = 0;  // NaNs behind every row of A and B
  bool accumulate = false;
  int64_t members = 1;
};

// All that a product writes, on so many threads.
std::vector<float> Computed(KernelSet& kernels, const Product& p, ThreadPool& pool, bool whole_range = false) {
  std::mt19937 random(13);
  const int64_t a_stride = p.k + p.gap, b_stride = p.n + p.gap;
  Operand<BF16> a(p.members * p.m * a_stride), b(p.members * p.k * b_stride);
  std::uniform_int_distribution<uint32_t> bits(0, 0xFFFF);
  std::uniform_int_distribution<int> eighths(-8, 8);
  const auto fill = [&](Operand<BF16>& to, int64_t rows, int64_t columns, int64_t stride) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        to[i * stride + j] = {whole_range ? static_cast<uint16_t>(bits(random)) : BF16Of(static_cast<float>(eighths(random)) / 8)};
      }
    }
  };
  fill(a, p.members * p.m, p.k, a_stride);
  fill(b, p.members * p.k, p.n, b_stride);
  Operand<float> c(p.members * p.m * p.n);
  Operand<BF16> c16(p.members * p.m * p.n);
  if (p.accumulate) std::fill_n(c.data(), c.size(), 0.5f);
  GemmCall call;
  call.input = DType::kBF16;
  call.output = p.narrow ? DType::kBF16 : DType::kF32;
  call.m = p.m;
  call.k = p.k;
  call.n = p.n;
  call.a = {a.data(), a_stride, 1, {p.m * a_stride}};
  call.b = {b.data(), b_stride, 1, {p.k * b_stride}};
  call.c = p.narrow ? static_cast<void*>(c16.data()) : c.data();
  call.batch_rank = p.members > 1 ? 1 : 0;
  call.batch_sizes[0] = p.members;
  call.c_batch_strides[0] = p.m * p.n;
  call.accumulate = p.accumulate;
  const absl::Status status = ReservedGemm(kernels, call, pool);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(c.GuardsHold() && c16.GuardsHold());
  std::vector<float> result(p.members * p.m * p.n);
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<float>(p.narrow ? c16.At(i) : c.At(i));
  // Sums of 64ths are exact.
  for (int64_t i = 0; i < std::ssize(result) && !whole_range; ++i) {
    const int64_t row = i / p.n, column = i % p.n, member = row / p.m;
    double want = p.accumulate ? 0.5 : 0;
    for (int64_t k = 0; k < p.k; ++k) want += a.At(row * a_stride + k) * b.At((member * p.k + k) * b_stride + column);
    if (p.narrow) want = WidenBF16(BF16Of(static_cast<float>(want)));
    EXPECT_EQ(result[i], want) << "at " << row << ", " << column << " of " << p.m << "x" << p.k << "x" << p.n;
    if (result[i] != want) break;
  }
  return result;
}

// Rows and columns that fill tiles or do not, K with and without a tail behind steps that are read in place, several blocks of
// K, columns that are packed in several parts, rows so far apart that they are copied, more blocks of rows than stay in L2.
const Product kProducts[] = {{16, 32, 16},          {48, 96, 48},        {32, 40, 33},           {33, 7, 31, true},
                             {47, 520, 18, false, 3}, {64, 33, 32, true, 5}, {70, 1100, 20, true}, {70, 1100, 20, false, 1, true},
                             {5, 40, 1100, true},   {20, 1024, 80},      {540, 3, 17, true},     {19, 70, 21, false, 2, false, 5},
                             {40, 24, 40, true, 0, false, 2}};

class AmxProducts : public EveryIsa {};

TEST_P(AmxProducts, AreExactInEveryCorner) {
  for (const Product& p : kProducts) {
    const std::vector<float> one = Computed(*kernels_, p, one_);
    for (ThreadPool* pool : {&two_, &Five()}) EXPECT_EQ(Computed(*kernels_, p, *pool), one);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiles, AmxProducts, ::testing::Values(Isa::kAmx, Isa::kAmxModel), IsaName);

TEST(Amx, TilesGiveTheModelsBits) {
  const absl::StatusOr<CpuTarget> target = TargetFor(Isa::kAmx);
  if (!target.ok()) GTEST_SKIP() << "SKIPPED: " << target.status().message();
  KernelSet tiles(*target), model(*TargetFor(Isa::kAmxModel));
  ThreadPool pool(2);
  for (const Product& p : kProducts) {
    const std::vector<float> real = Computed(tiles, p, pool, true), modelled = Computed(model, p, pool, true);
    for (size_t i = 0; i < real.size(); ++i) {
      if (std::isnan(modelled[i])) {
        EXPECT_TRUE(std::isnan(real[i]));
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(real[i]), std::bit_cast<uint32_t>(modelled[i])) << "at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
