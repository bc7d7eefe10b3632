// Small functions with control flow: loops in loops, branches with captures, calls. For tests that run them through something.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/ops/call.h"
#include "tests/support/op_programs.h"

namespace weft::test {

// A function of parameters of these types; the formula, which must not fail, may return any number of results.
using Formula = std::function<std::vector<ir::Value>(ir::Builder&, const std::vector<ir::Value>&)>;
Ref<const ir::Function> MakeFunction(std::string name, const std::vector<ir::Type>& types, const Formula& formula);

ir::Values While(ir::Builder& b, const Ref<const ir::Function>& condition, const Ref<const ir::Function>& body,
                 ir::Values operands);
// i < n for the first carried value and one capture; the other carried values are passed by.
Ref<const ir::Function> Below(std::vector<ir::Type> carried);

// n -> (n, the n-th Fibonacci number, the next): three carried values, two of which change places.
Ref<const ir::Function> Fibonacci();
// n -> the sum over i < n of the sum over j < i of j: a loop in a loop, whose count is carried by the outer one.
Ref<const ir::Function> NestedLoops();
// (index, x, y) -> x + x and 0, x y and 1, or -1 and 2; the rows have 5 elements.
Ref<const ir::Function> Branches();
// (x, y) -> x y if x > 0, else exp(x) + y y by a call.
Ref<const ir::Function> Piecewise();

// All of these at a few arguments, the last two with their gradients.
absl::StatusOr<std::vector<OpProgram>> ControlPrograms();

}  // namespace weft::test
