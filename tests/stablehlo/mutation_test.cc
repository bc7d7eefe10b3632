// Broken texts by chance: whatever is done to them, reading ends, in an error with line and column or in a module that verifies.
#include <chrono>
#include <random>

#include "src/ir/stablehlo.h"
#include "src/passes/pipeline.h"
#include "tests/stablehlo/forms.h"
#include "tests/stablehlo/read_support.h"
#include "tests/support/control_programs.h"

namespace weft::stablehlo {
namespace {

constexpr uint32_t kSeed = 20;
constexpr auto kTime = std::chrono::seconds(3);

constexpr std::string_view kTokens[] = {
    "%0", "%a", "#1", ":", ":2", "(", ")", "{", "}", "[", "]", "<", ">", ",", "=", "->", "\"", "@main", "^bb0(%x: tensor<f32>):",
    "-1", "0", "99999999999999999999", "9223372036854775807", "4294967295", "0x", "1e400", "tensor<", "tensor<2xf32>", "?x", "x",
    "dense<", "array<i64: ", "#stablehlo.gather<", "loc(", "stablehlo.", "\"stablehlo.if\"(%a) (", "({", "})", "true", "dims = ",
    "init: ", "applies ", "func.call @main(%a)", "tuple<", "complex<f32>", "!stablehlo.token", "\\", "//", "\n",
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

TEST(StableHloMutations, EndInAnErrorOrAProgram) {
  const std::vector<std::string> corpus = Corpus();
  Mutator mutator(corpus, kSeed);
  int64_t read = 0, all = 0;
  for (const auto end = std::chrono::steady_clock::now() + kTime; std::chrono::steady_clock::now() < end; ++all) {
    const std::string text = mutator.Next();
    auto module = ReadStableHlo(text);
    if (!module.ok()) {
      ASSERT_THAT(std::string(module.status().message()), testing::StartsWith("line ")) << "seed " << kSeed << "\n" << text;
      ASSERT_FALSE(absl::IsInternal(module.status())) << module.status() << "\n" << text;
      continue;
    }
    ++read;
    ASSERT_TRUE(ir::Verify(*module).ok()) << ir::Verify(*module) << "\nseed " << kSeed << "\n" << text;
  }
  EXPECT_GT(read, all / 1000) << "of " << all << ": mutations that break everything find nothing";
}

}  // namespace
}  // namespace weft::stablehlo
