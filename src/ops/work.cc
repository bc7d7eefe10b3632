// See work.h.
#include "src/ops/work.h"

#include <algorithm>

#include "src/runtime/shape.h"

namespace weft::ops {
namespace {

using namespace ir;

Work Times(double times, const Work& work) { return {times * work.flops, times * work.transcendentals}; }
double Weight(const Work& work) { return work.flops + work.transcendentals; }

}  // namespace

double ElementsOf(const Type& type) { return type.is_tensor() ? static_cast<double>(CountOf(type.dims)) : 0; }

absl::StatusOr<Work> WorkOfAll(const WorkCall& call) {
  Work all;
  for (const Work& one : call.regions) {
    all = {all.flops + one.flops, all.transcendentals + one.transcendentals};
  }
  return all;
}

absl::StatusOr<Work> WorkOfDearest(const WorkCall& call) {
  Work dearest;
  for (const Work& one : call.regions) {
    if (Weight(one) > Weight(dearest)) dearest = one;
  }
  return dearest;
}

Work WorkOfTimes(const WorkCall& call, double times) {
  return call.regions.empty() ? Work{.flops = times} : Times(times, call.regions.back());
}

absl::StatusOr<Work> WorkOfReduction(const WorkCall& call) {
  return WorkOfTimes(call, std::max(ElementsOf(call.node.operands()[0].type()) - ElementsOf(call.node.type()), 0.0));
}
absl::StatusOr<Work> WorkOfUpdates(const WorkCall& call) {
  return WorkOfTimes(call, ElementsOf(call.node.operands().back().type()));
}
absl::StatusOr<Work> WorkOfElements(const WorkCall& call) {
  return WorkOfTimes(call, ElementsOf(call.node.operands()[0].type()));
}

Work WorkOfWindows(const WorkCall& call, std::span<const int64_t> sizes) {
  const auto places = static_cast<double>(CountOf(sizes));
  return WorkOfTimes(call, ElementsOf(call.node.type()) * std::max(places - 1, 0.0));
}

}  // namespace weft::ops
