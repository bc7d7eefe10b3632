// Checkpoints that follow each other in one folder: their names by step, which of them stay, and the pointer that names the newest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/atomic_file.h"
#include "serialization/checkpoint_schema.h"
#include "src/runtime/io.h"

namespace weft {

// A name with one place for the step: "model-{step}.weft".
class StepName {
 public:
  static constexpr std::string_view kStep = "{step}";
  // Reads the last part of a path; INVALID_ARGUMENT unless it has one place.
  static absl::StatusOr<StepName> Of(std::string_view path);
  std::string Path(int64_t step) const;  // with the path's other parts
  // The step of a name that Path makes; nullopt of all others.
  std::optional<int64_t> StepOf(std::string_view name) const;

 private:
  std::string folder_, before_, after_;
};

struct Retention {
  int64_t keep_last = 0;   // of this one and older ones, by step; 0 and less: all
  int64_t keep_every = 0;  // multiples of it stay, too; 0: none
};
// Returns the header of a checkpoint that ends as one does, with its bases; nullopt of all other files.
std::optional<HeaderRecord> HeaderOf(File file);
// Removes older checkpoints of the name from the folder of `place`: regular files that are Weft checkpoints whose header has the step
// of their name, that no pointer in the folder names, and that no checkpoint that stays takes parts from. What cannot be read or
// removed stays.
void RemoveOlder(const FilePlace& place, const StepName& name, int64_t step, const Retention& retention);

// A pointer: a text file that names another file of its folder.
inline constexpr size_t kMostPointerBytes = 300;
bool IsNameBeside(std::string_view name);  // that a pointer may say
std::string PointerTo(std::string_view name);
bool IsPointer(std::string_view first_bytes);
// The name in it. DATA_LOSS where a pointer says something else than one name of a file beside it.
absl::StatusOr<std::string> NameInPointer(std::string_view bytes, const std::string& file);

}  // namespace weft
