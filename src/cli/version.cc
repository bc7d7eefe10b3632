// `weft version`.
#include "src/cli/command.h"
#include "src/cli/library.h"

namespace weft::cli {
namespace {

int Version(const Arguments& arguments) {
  Print(VersionFields(), arguments.has("--json"));
  return kDone;
}

const Registration kVersion({.name = "version",
                             .summary = "release, ABI version and file of the library",
                             .flags = {{"--json", "as one JSON object"}},
                             .execute = Version});

}  // namespace
}  // namespace weft::cli
