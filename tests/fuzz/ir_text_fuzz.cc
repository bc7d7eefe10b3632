// Any bytes as Weft's text, which files of functions hold: an error, or a module that is refused by Verify or written as text
// that gives the same text again.
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/registry.h"
#include "tests/fuzz/seeded.h"

namespace {

constexpr const char* kTexts[] = {
    "module {words = 1}\nfunc @main(%0: tensor<2x3xf32>, %1: tensor<f32> {word = 0}) -> (tensor<2x3xf32>) {\n"
    "  %2 = broadcast_in_dim(%1) {shape = [2, 3], broadcast_dimensions = []} : tensor<2x3xf32>\n"
    "  %3 = add(%0, %2) : tensor<2x3xf32> loc(\"train.c:42\")\n  return %3\n}\n",
    "module\nfunc @main(%0: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi1>) {\n"
    "  %1 = constant() {value = [1.0, 2.0, nan:0x7ff8000000000000, -inf] : tensor<4xf32>} : tensor<4xf32>\n"
    "  %2 = compare(%0, %1) {direction = \"LT\"} : tensor<4xi1>\n  return %1, %2\n}\n",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  const auto module = ir::Parse({reinterpret_cast<const char*>(data), size}, ops::FindOp);
  if (!module.ok() || !ir::Verify(*module).ok()) return 0;
  const std::string text = ir::Print(*module);
  const auto again = ir::Parse(text, ops::FindOp);
  if (again.ok() && ir::Print(*again) == text) return 0;
  std::fprintf(stderr, "%s\n%s\n", text.c_str(), again.status().ToString().c_str());
  std::abort();
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return SeededOrMutated(kTexts[seed % std::size(kTexts)], 64, data, size, max_size);
}
