// JSON as a stream of events, so that nothing is built that nobody wants. The parser is nlohmann's; this is its only door.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// Gets what stands in a text, in order. An error ends the reading and comes back from it.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual absl::Status BeginObject() = 0;
  virtual absl::Status EndObject() = 0;
  virtual absl::Status BeginArray() = 0;
  virtual absl::Status EndArray() = 0;
  virtual absl::Status Key(std::string key) = 0;
  virtual absl::Status String(std::string value) = 0;
  virtual absl::Status Unsigned(uint64_t value) = 0;
  // null, true, false, a negative number or one with a fraction; `what` says which.
  virtual absl::Status Other(std::string_view what) = 0;
};

// Strict JSON, UTF-8 checked; nothing may follow but white space. `depth` is how deep objects and arrays may nest: deeper is an
// error, at no cost in stack. `offset` is where the text stands in the file, for error texts.
absl::Status ReadJson(std::string_view text, int depth, JsonEvents& events, const std::string& file, uint64_t offset);

}  // namespace weft
