// Any bytes as the canonical form of a program, which entries of the compile cache hold: refused, or a function that is refused by
// Verify or has texts and bytes of its own.
#include <cstdint>
#include <cstdlib>

#include "src/compiler/canonical.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "tests/fuzz/seeded.h"

namespace {

using namespace weft;

// tanh(x * literal) summed, with an argument that can be taken over and one that is a number.
std::string ValidBytes() {
  const ir::Value x{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(DType::kF32, {4, 4})}), 0};
  const ir::Value number{ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Scalar(DType::kF32)}), 0};
  HostTensor literal(DType::kF32, {4, 4});
  for (int64_t i = 0; i < 16; ++i) literal.SetDouble(i, static_cast<double>(i));
  ir::Builder b(ir::Location{});
  const ir::Value constant = ops::Call(b, ops::kOp_constant, {}, {Ref<const Literal>(MakeRef<Literal>(literal))});
  const ir::Value product = ops::Call(b, ops::kOp_mul, {x, constant});
  const ir::Value turned = ops::Call(b, ops::kOp_transpose, {product}, {ir::Ints{1, 0}});
  if (!b.ok()) std::abort();
  compiler::Trace trace;
  trace.arguments = {{x.node.get(), 0, 0, 0}, {number.node.get(), 0, 1, -1}};
  trace.nodes = {constant.node.get(), product.node.get(), turned.node.get()};
  trace.operands = {compiler::Trace::OfArgument(0), compiler::Trace::OfValue(0), compiler::Trace::OfValue(1)};
  trace.values = 3;
  trace.words = 1;
  trace.outputs = {compiler::Trace::OfValue(2)};
  std::string bytes;
  compiler::AppendCanonical(trace, &bytes);
  if (!compiler::ReadCanonical(bytes).ok()) std::abort();
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view given(reinterpret_cast<const char*>(data), size);
  // Programs of many arguments, which a few bytes can say, take a second to read: the corpus does without.
  constexpr size_t kMostArguments = 4096;
  if (const auto arguments = compiler::ReadArguments(given); arguments.ok() && arguments->size() > kMostArguments)
    return -1;
  static_cast<void>(compiler::ReadNode(given));
  const auto function = compiler::ReadCanonical(given);
  if (!function.ok()) return 0;
  ir::Module module;
  module.functions.push_back(*function);
  if (!ir::Verify(module).ok()) return 0;
  static_cast<void>(ir::Print(module));
  std::string bytes;
  compiler::AppendCanonical(**function, &bytes);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  static const std::string valid = ValidBytes();
  return SeededOrMutated(valid, 32, data, size, max_size);
}
