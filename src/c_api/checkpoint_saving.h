// The beginning of every save of the C interface: its options, and the values that it keeps.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "serialization/checkpoint_writer.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/retention.h"
#include "src/c_api/callbacks.h"
#include "src/c_api/context.h"
#include "src/c_api/tree_object.h"
#include "weft.h"

namespace weft::c_api {

// The bytes of a tree's tensors as they were when the save began: aliases do not see later assignments.
class Values final : public TensorSource {
 public:
  static absl::Status CheckEngine(const TensorTree& tree, const lazy::Engine& engine);
  absl::Status Take(const TensorTree& tree, std::span<const uint32_t> leaves);
  // Computes what is pending, all at once.
  absl::Status Evaluate(lazy::Engine& engine);
  // For a thread of the library's.
  absl::Status Wait() const { return computed_ ? computed_->Wait() : absl::OkStatus(); }
  absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) override;

 private:
  std::vector<Ref<lazy::Tensor>> values_;
  Ref<Event> computed_;
};

// `options` names the struct in the error.
absl::StatusOr<bool> ReadCompress(weft_compress compress, std::string_view options);
absl::StatusOr<SaveOptions> ReadSaveOptions(const weft_checkpoint_options* options);

// Removes older files and writes the pointer once a save is there.
class Following {
 public:
  // The file's path in the place of `path`, if that is a name by steps.
  static absl::StatusOr<Following> Of(const weft_checkpoint_options* options, std::string* path);
  // Tells whether anything is to be done.
  bool any() const { return !pointer_.empty() || by_step_.has_value(); }
  // Looks the folder up, as the save does with its own.
  absl::Status Find(const std::string& path);
  absl::Status After(Durability durability);

 private:
  std::optional<StepName> by_step_;
  Retention retention_;
  int64_t step_ = 0;
  std::string pointer_, name_;        // of the pointer, and of the file
  std::optional<FilePlace> place_;    // of the file, whose folder is looked at
  std::optional<FilePlace> pointed_;  // of the pointer
};

// The options of a file in another format than a checkpoint, and who hears how far the save is.
struct Foreign {
  FileFormat format = FileFormat::kWeft;
  Tied tied = Tied::kRefuse;
  weft_progress_fn progress = nullptr;
  void* user_data = nullptr;
  std::shared_ptr<UserData> owner;  // of user_data
};
absl::StatusOr<Foreign> ReadForeign(const weft_checkpoint_options* options);

}  // namespace weft::c_api
