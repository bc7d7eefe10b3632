// The compile cache's files as the program cache sees them.
#pragma once

#include <memory>
#include <string>

#include "src/compiler/store.h"
#include "src/lazy/options.h"

namespace weft::c_api {

// Null for an empty directory. Problems go to the log as warnings, once per kind, and never fail anything.
std::unique_ptr<compiler::ProgramStore> OpenProgramStore(const std::string& directory, bool read_only, uint64_t max_bytes,
                                                         lazy::LogHook log);

}  // namespace weft::c_api
