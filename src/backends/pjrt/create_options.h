// Options that a plugin takes when a client or a topology is made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/backends/pjrt/api.h"
#include "src/runtime/status.h"

namespace weft::pjrt {

// Immutable once its named values are asked for, which point into it.
class CreateOptions {
 public:
  // "key=value,…": true and false are truth values, 4 is an integer, 0.5 a float and everything else text, which quotes make of the
  // others: '4'.
  static absl::StatusOr<CreateOptions> Parse(std::string_view text);
  // Sets an option's value unless the text has an option of that name.
  void Default(std::string_view name, std::string_view value);

  std::vector<api::NamedValue> NamedValues() const;
  // Returns the plugin's error with the options that it was given.
  absl::Status Explain(const absl::Status& status) const;

 private:
  std::string text_;
  std::vector<std::pair<std::string, std::string>> all_;  // values with their quotes
};

}  // namespace weft::pjrt
