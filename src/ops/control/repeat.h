// Loops inside expansions: values that are carried until none of them goes on.
#pragma once

#include "src/ir/function.h"
#include "src/ops/parameter.h"

namespace weft::ops {

// A while of functions that are made here. `goes_on` gives a bool tensor of what is carried: the loop ends where it is false
// everywhere. `next` gives what is carried next, of that and of `outside`, which stays. Empty values after a failure.
template <typename GoesOn, typename Next>
ir::Values Repeat(ir::Builder& b, std::string_view name, const ir::Values& carried, const ir::Values& outside,
                  GoesOn goes_on, Next next) {
  const size_t count = carried.size();
  if (!b.ok()) return ir::Values(count);
  ir::Builder inside(b.location());
  std::vector<ir::Value> asked = ParametersLike({carried.data(), count});
  const ir::Value some = goes_on(inside, std::span<const ir::Value>(asked));
  if (!some) {
    b.Fail(inside.status());
    return ir::Values(count);
  }
  const ir::Value any = Reduce(inside, some, Reducer::kOr, Axes(some.dims().size()));
  ir::Values all = carried;
  all.insert(all.end(), outside.begin(), outside.end());
  std::vector<ir::Value> given = ParametersLike({all.data(), all.size()});
  const std::span<const ir::Value> parameters(given);
  const ir::Values found = next(inside, parameters.first(count), parameters.subspan(count));
  if (!inside.ok()) {
    b.Fail(inside.status());
    return ir::Values(count);
  }
  const Ref<const ir::Function> functions[] = {
      ir::Function::Create("goes_on", std::move(asked), {any}),
      ir::Function::Create(std::string(name), std::move(given), {found.begin(), found.end()})};
  return CallAll(b, kOp_while, std::move(all), {}, functions);
}

}  // namespace weft::ops
