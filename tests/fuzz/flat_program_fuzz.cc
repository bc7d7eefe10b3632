// Any bytes as the text that the command draws programs from: refused, or a list of operations whose references are all in it.
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "src/cli/flat_program.h"
#include "tests/fuzz/seeded.h"

namespace {

using weft::cli::FlatProgram;

constexpr const char* kTexts[] = {
    "module {words = 1}\nfunc @main(%0: tensor<2x3xf32>, %1: tensor<f32> {word = 0}) -> (tensor<2x3xf32>) {\n"
    "  %2 = broadcast_in_dim(%1) {shape = [2, 3], broadcast_dimensions = []} : tensor<2x3xf32>\n"
    "  %3 = add(%0, %2) : tensor<2x3xf32> loc(\"train.c:42\")\n  return %3\n}\n",
    "module\nprivate func @f(%0: tensor<f32>) -> (tensor<f32>) {\n  %1 = exp(%0) : tensor<f32>\n  return %1\n}\n"
    "func @main(%0: tensor<f32>) -> (tensor<f32>, tensor<f32>) {\n  %1 = weft.call(%0) @f : tensor<f32> loc(\"a.c:1\")\n"
    "  %2:2 = weft.twice(%1, none) {on = \"a\\\"b\"} : tensor<f32>, tensor<f32>\n  return %2, %2#1\n}\n",
    "private func @f(%0: tensor<f32>) -> (tensor<f32>) {\n  %1 = weft.call(%0) @g : tensor<f32>\n  return %1\n}\n"
    "private func @g(%0: tensor<f32>) -> (tensor<f32>) {\n  %1 = weft.call(%0) @f : tensor<f32>\n  return %1\n}\n"
    "func @main(%0: tensor<f32>) -> (tensor<f32>) {\n  %1 = weft.call(%0) @f : tensor<f32>\n  return %1\n}\n",
};

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckValue(const FlatProgram& program, const std::pair<size_t, size_t>& value, size_t before) {
  if (value.first == FlatProgram::kNone) return;
  Check(value.first < before && value.second < program.nodes[value.first].results);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FlatProgram program;
  std::string problem;
  const bool read = weft::cli::Flatten({reinterpret_cast<const char*>(data), size}, &program, &problem);
  Check(read == problem.empty());
  if (!read) return 0;
  Check(program.parameters <= program.nodes.size());
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    for (const auto& operand : program.nodes[i].operands) CheckValue(program, operand, i);
  }
  for (const auto& result : program.results) CheckValue(program, result, program.nodes.size());
  static_cast<void>(program.Text());
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return SeededOrMutated(kTexts[seed % std::size(kTexts)], 64, data, size, max_size);
}
