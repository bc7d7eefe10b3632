// Broken texts by chance: whatever is done to them, reading ends, in an error with line and column or in a module that verifies.
#include <random>

#include "src/compiler/lower.h"
#include "src/ir/stablehlo.h"
#include "src/passes/pipeline.h"
#include "tests/stablehlo/forms.h"
#include "tests/stablehlo/read_support.h"
#include "tests/support/control_programs.h"
#include "tests/support/seeds.h"

namespace weft::stablehlo {
namespace {

constexpr int kTextsPerSeed = 2000;

constexpr std::string_view kTokens[] = {
    ", dim", " {k}", " {k = unit}", " {\"a b\" = 1 : i64}", "\\01", "\\\"", ", a = [2] x [3]", " {mhlo.sharding = \"{\\01\\7F}\"}",
    " {k = #map}", " {k = !t}", "#map = 3 : i64\n", "!t = tensor<2xf32>\n", " {k = @f}", " {k = [1, \"x\"]}", " {k = {a = 1, b}}", " {k = dense<1> : tensor<i64>}",
    "%0", "%a", "#1", ":", ":2", "(", ")", "{", "}", "[", "]", "<", ">", ",", "=", "->", "\"", "@main", "^bb0(%x: tensor<f32>):",
    "-1", "0", "99999999999999999999", "9223372036854775807", "4294967295", "0x", "1e400", "tensor<", "tensor<2xf32>", "?x", "x",
    "dense<", "array<i64: ", "#stablehlo.gather<", "loc(", "stablehlo.", "\"stablehlo.if\"(%a) (", "({", "})", "true", "dims = ",
    "init: ", "applies ", "func.call @main(%a)", "tuple<", "complex<f32>", "!stablehlo.token", "!quant.uniform<", "i8<-8:7>", ":f32:0, {0.5:3, 1e-3}>", "0.0", "\\", "//", "\n",
};

std::vector<std::string> Corpus() {
  std::vector<std::string> texts;
  for (const Form& form : kForms) texts.push_back(TextOf(form));
  auto programs = test::ControlPrograms();
  EXPECT_TRUE(programs.ok());
  for (const test::OpProgram& program : *programs) {
    auto lowered = passes::RunPipeline(program.module, {});
    auto text = lowered.ok() ? ir::ToStableHlo(*lowered) : lowered.status();
    EXPECT_TRUE(text.ok()) << text.status();
    if (text.ok()) texts.push_back(*text);
  }
  return texts;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, uint32_t seed) : corpus_(corpus), random_(seed) {}

  std::string Next() {
    std::string text = corpus_[Below(corpus_.size())];
    for (size_t n = 1 + Below(3); n > 0; --n) Change(text);
    return text;
  }

 private:
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }
  void Change(std::string& text) {
    const size_t at = Below(text.size()), length = std::min(Below(40), text.size() - at);
    const std::string_view token = kTokens[Below(std::size(kTokens))];
    switch (Below(6)) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, token); break;
      case 2: text.replace(at, length, token); break;
      case 3: text.insert(Below(text.size()), text.substr(at, length)); break;
      case 4:
        if (!text.empty()) text[at] = static_cast<char>(Below(256));
        break;
      default: {
        const std::string& other = corpus_[Below(corpus_.size())];
        text.insert(at, other.substr(Below(other.size()), length));
      }
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937 random_;
};

// What was read is written so that it is read again.
void ReadsWhatItWrites(const ir::Module& module, std::string_view from) {
  const auto written = compiler::StableHloText(module);
  if (!written.ok()) return;  // StableHLO has no word for it, perhaps
  const auto again = ReadStableHlo(*written);
  EXPECT_TRUE(again.ok()) << again.status() << "\nwritten\n" << *written << "\nof\n" << from;
}

// How many of the seed's texts were read.
int ReadMutations(const std::vector<std::string>& corpus, uint64_t seed) {
  Mutator mutator(corpus, static_cast<uint32_t>(seed));
  int read = 0;
  for (int i = 0; i < kTextsPerSeed; ++i) {
    const std::string text = mutator.Next();
    auto module = ReadStableHlo(text);
    // Nor does one that is read with its shardings.
    const auto placed = ReadStableHlo(text, {.alone = false});
    EXPECT_FALSE(absl::IsInternal(placed.status())) << placed.status() << "\nseed " << seed << "\n" << text;
    if (module.ok()) {
      ++read;
      EXPECT_TRUE(ir::Verify(*module).ok()) << ir::Verify(*module) << "\nseed " << seed << "\n" << text;
      ReadsWhatItWrites(*module, text);
    } else {
      EXPECT_THAT(std::string(module.status().message()), testing::StartsWith("line ")) << "seed " << seed << "\n" << text;
      EXPECT_FALSE(absl::IsInternal(module.status())) << module.status() << "\nseed " << seed << "\n" << text;
    }
    if (testing::Test::HasFailure()) break;
  }
  return read;
}

TEST(StableHloMutations, EndInAnErrorOrAProgram) {
  const std::vector<std::string> corpus = Corpus();
  const auto [first, last] = test::Seeds(40);
  ASSERT_LE(first, last);
  int64_t read = 0;
  for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) read += ReadMutations(corpus, seed);
  EXPECT_GT(read, 0) << "mutations that break everything find nothing";
}

}  // namespace
}  // namespace weft::stablehlo
