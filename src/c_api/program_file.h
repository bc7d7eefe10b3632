// Programs as functions, from texts and from files of each kind.
#pragma once

#include <string>
#include <string_view>

#include "src/c_api/context.h"
#include "src/ir/function.h"

namespace weft::c_api {

// Weft's own text, as weft_program_text and weft_function_text write it. Parameters keep their roles. UNIMPLEMENTED for a
// program of several devices; the caller's functions must be registered.
absl::StatusOr<Ref<const ir::Function>> FunctionOfText(const Context& context, std::string_view text);
// The file of a function, or the program of an entry of the compile cache. Errors begin with the path.
absl::StatusOr<Ref<const ir::Function>> FunctionOfFile(const Context& context, const std::string& path);
// The function with parameters that are tensors like any other, which whoever calls it gives.
Ref<const ir::Function> WithoutRoles(const ir::Function& function);

struct ProgramFile {
  Ref<const ir::Function> function;
  std::string key;  // of an entry of the compile cache: its canonical form; else empty
};
// A file of any kind that holds a program: those above, or text, Weft's own or StableHLO.
absl::StatusOr<ProgramFile> ReadProgramFile(const Context& context, const std::string& path);

}  // namespace weft::c_api
