// The program store on disk: serialization's compile cache, seen as programs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/compiler/store.h"

namespace weft {
class CompileCacheStore;
}

namespace weft::compiler {

// The cache is opened by the caller (directory, read-only mode, size), who may keep it for statistics.
std::unique_ptr<ProgramStore> MakeDiskStore(std::shared_ptr<CompileCacheStore> cache);

}  // namespace weft::compiler
