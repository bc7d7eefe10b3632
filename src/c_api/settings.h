// The values of options that a context was made with, and who said them. Precedence: the caller's settings, then the
// environment, then the default. The options are lines of bindings/generate/api.json.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "src/c_api/generated/option_table.h"
#include "src/runtime/held_types.h"
#include "src/runtime/status.h"
#include "weft_base.h"

namespace weft::c_api {

// Position in the table, or nothing.
std::optional<size_t> FindOption(std::string_view name);
// NOT_FOUND that names the nearest.
absl::StatusOr<size_t> KnownOption(std::string_view name);

// The value in its one spelling. `from` names the option as its setter knows it.
absl::StatusOr<std::string> CheckOption(Option option, std::string_view value, std::string_view from);

// Immutable once a context has it.
class Settings {
 public:
  // Reads the environment, then the caller's list. An unknown name or a value of the wrong type is an error.
  static absl::StatusOr<Settings> Read(const weft_setting* settings, size_t count);

  const std::string& text(Option option) const { return values_[static_cast<size_t>(option)]; }
  const std::string& text(size_t option) const { return values_[option]; }
  int64_t integer(Option option) const;
  bool truth(Option option) const { return text(option) == "1"; }
  // Returns the type modes that use_bf16, downcast_bf16 and use_32bit_long amount to.
  HeldTypes held() const;
  weft_option_source source(size_t option) const { return sources_[option]; }
  // Names, in a sentence, what the environment asks for that no longer exists; empty if nothing.
  const std::string& ignored() const { return ignored_; }
  void set(Option option, std::string value) {
    values_[static_cast<size_t>(option)] = std::move(value);
    sources_[static_cast<size_t>(option)] = WEFT_OPTION_FROM_CALLER;
  }

 private:
  // Others' variables of options, and PJRT_DEVICE for the platform, stand where nobody else chooses.
  absl::Status ReadOthersVariables();
  absl::Status ReadOthersVariable(size_t option, std::string_view variable, std::string_view values);
  // XRT_TPU_CONFIG and its kin are an error where they would have meant something.
  absl::Status ReadXrtVariables();
  // PyTorch/XLA has two variables for the option op_by_op.
  absl::Status ReadOpByOpVariables();

  std::array<std::string, static_cast<size_t>(Option::kCount)> values_;
  std::array<weft_option_source, static_cast<size_t>(Option::kCount)> sources_ = {};
  std::string ignored_;
};

}  // namespace weft::c_api
