// A program's kernels and what each takes, measured by running it on zeros.
#pragma once

#include <string>
#include <vector>

#include "src/cli/flat_program.h"
#include "src/cli/library.h"
#include "src/cli/report.h"

namespace weft::cli {

struct MeasuredKernel {
  std::string name, implementation;
  int64_t nanoseconds = 0;  // of one run of the program
  int64_t flops = -1, bytes = -1;
  std::vector<size_t> nodes;  // of the flat program; may be empty
};

// Compiles and runs the program some times. False, and the problem, where it cannot be run.
bool Measure(const FlatProgram& program, std::string* problem, std::vector<MeasuredKernel>* out);
// A tensor of zeros for each input of a function, none of them part of a program; the problem, or empty.
std::string MakeZeros(weft_context* context, const std::vector<weft_tensor_info>& types,
                      std::vector<std::unique_ptr<weft_tensor, Releases<&weft_tensor_release>>>* out);

}  // namespace weft::cli
