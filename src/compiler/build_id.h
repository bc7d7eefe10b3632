// Identifies this build of the compiler in cache keys: code that another build compiled is never reused.
#pragma once

#include <string>

namespace weft::compiler {

// The linker's build id of the library (or program) this function lives in, as hex; a version number where there is none.
std::string BuildId();

}  // namespace weft::compiler
