// See function_difference.h.
#include "src/compiler/function_difference.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/compiler/canonical.h"
#include "src/compiler/lower.h"
#include "src/ir/rewrite.h"
#include "src/ir/verify.h"
#include "src/passes/passes.h"

namespace weft::compiler {
namespace {

// A function as comparisons want it.
struct Prepared {
  Ref<const ir::Function> function;
  Trace trace;
  Outline outline;
  std::string canonical;
};

absl::StatusOr<Prepared> Prepare(const Ref<const ir::Function>& function) {
  ir::Module module;
  module.functions.push_back(function);
  WEFT_ASSIGN_OR_RETURN(module, passes::InlineCalls(module, {}));
  // Functions that compute the same are one object from here on, with the positions of the first.
  Prepared made = {.function = ir::InternAll(module.main()), .trace = {}, .outline = {}, .canonical = {}};
  made.trace = TraceOf(*made.function);
  PassedNodes passed;
  AppendCanonical(made.trace, &made.canonical, &passed);
  made.outline = OutlineOf(made.trace, made.canonical, passed);
  const auto nodes = module.main().nodes().subspan(module.main().parameters().size());
  for (Outline::Node& node : made.outline.nodes) node.at = nodes[node.traced]->location();
  return made;
}

}  // namespace

absl::StatusOr<std::optional<FunctionDifference>> DifferenceOf(const Ref<const ir::Function>& before,
                                                               const Ref<const ir::Function>& now) {
  WEFT_ASSIGN_OR_RETURN(const Prepared was, Prepare(before));
  WEFT_ASSIGN_OR_RETURN(const Prepared is, Prepare(now));
  if (was.canonical == is.canonical) return std::nullopt;
  const std::optional<Difference> found = Compare(was.outline, is.outline);
  if (!found) {
    return FunctionDifference{
        .reason = Reason::kFirst,
        .text = absl::StrCat("less than half of the operations are the same (", was.outline.nodes.size(), " and ",
                             is.outline.nodes.size(), " nodes)"),
        .at = {}};
  }
  return FunctionDifference{.reason = found->reason,
                            .text = TextOf(*found, was.outline, was.canonical, is.outline, is.canonical),
                            .at = found->at};
}

}  // namespace weft::compiler
