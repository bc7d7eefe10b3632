// A file to whose end records are written, whoever else writes there.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace weft {

// Thread rule: any thread. A record is one write to the end of the file, so that those of several threads and processes do not mix. What
// cannot be written is lost with one warning, and whoever computes goes on.
class LineFile {
 public:
  // A path, STDERR or STDOUT. `warn` may be empty.
  LineFile(std::string path, std::function<void(std::string)> warn) : path_(std::move(path)), warn_(std::move(warn)) {}
  void Write(std::string_view record);

 private:
  const std::string path_;
  const std::function<void(std::string)> warn_;
  std::atomic<bool> warned_{false};
};

}  // namespace weft
