// Small programs with functions of scalars: reductions, windows, scatters and sorts by bodies of all kinds. For tests that run
// them through something.
#pragma once

#include <string>
#include <vector>

#include "tests/support/op_programs.h"

namespace weft::test {

// The value and the position of the largest (smallest) element along `dimensions`, as JAX writes it: a reduction of pairs.
Ref<const ir::Function> ExtremeAndPlace(DType dtype, const Dims& dims, const ir::Ints& dimensions, bool largest);
// log(sum(exp)) of the rows of f32[dims], by pairs.
Ref<const ir::Function> LogSumExpByPairs(DType dtype, const Dims& dims, const ir::Ints& dimensions);
// Results of random elementwise operations on the parameters' types, the parameters themselves among the operands: the same for
// the same seed. `results` of the parameters' first types.
Ref<const ir::Function> RandomBody(uint64_t seed, const std::vector<DType>& parameters, const std::vector<DType>& results);

// Values of the type with many ties; floats with NaN, infinities and both zeros among them.
HostTensor Ties(DType dtype, const Dims& dims, uint64_t seed, bool edges = true);

// Everything, in all types that it takes. The names of programs whose bodies capture something end in "captured".
absl::StatusOr<std::vector<OpProgram>> BodyPrograms();

}  // namespace weft::test
