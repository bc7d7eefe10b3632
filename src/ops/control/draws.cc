// See draws.h.
#include "src/ops/control/draws.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/ops/parameter.h"
#include "src/ops/random/bits.h"

namespace weft::ops {
namespace {

using namespace ir;

Value Number(DType dtype) { return Parameter(Type::Scalar(dtype)); }

}  // namespace

bool Draws(const Node& node) { return node.op().random || &node.op() == &kOp_rng_bit_generator; }

bool Draws(const Function& function) {
  return std::ranges::any_of(CalleesFirst(function), [](const Function* each) {
    return std::ranges::any_of(each->nodes(), [](const Node* node) { return Draws(*node); });
  });
}

absl::StatusOr<Ref<const Function>> NumberedRun(const Function& function, size_t carried, bool draws, bool carries) {
  std::string key = absl::StrCat("numbered ", carried, " ", draws, " ", carries);
  if (Ref<const Function> known = function.Derived(key)) return known;
  std::vector<Value> parameters = ParametersLike(function.parameters()), arguments = parameters;
  const Value number = Number(DType::kU64);
  Builder b;
  if (draws) arguments.back() = StreamOf(b, arguments.back(), number);
  WEFT_RETURN_IF_ERROR(b.status());
  const Values found = Inline(function, arguments);
  std::vector<Value> results(found.begin(), found.end());
  if (carries) results.push_back(Add(b, number, U64(b, 1)));
  WEFT_RETURN_IF_ERROR(b.status());
  parameters.insert(parameters.begin() + static_cast<ptrdiff_t>(carried), number);
  return function.Derive(std::move(key),
                         Intern(Function::Create(function.name(), std::move(parameters), std::move(results))));
}

absl::StatusOr<Ref<const Function>> IndexedRun(const Function& body, bool indexed) {
  std::string key = absl::StrCat("indexed ", indexed);
  if (Ref<const Function> known = body.Derived(key)) return known;
  std::vector<Value> parameters = ParametersLike(body.parameters()), arguments = parameters;
  const Value index = indexed ? parameters[0] : Number(DType::kI32);
  Builder b;
  arguments.back() = StreamOf(b, arguments.back(), Convert(b, index, DType::kU64));
  WEFT_RETURN_IF_ERROR(b.status());
  const Values found = Inline(body, arguments);
  if (!indexed) parameters.insert(parameters.begin(), index);
  return body.Derive(std::move(key), Intern(Function::Create(body.name(), std::move(parameters),
                                                             std::vector<Value>(found.begin(), found.end()))));
}

}  // namespace weft::ops
