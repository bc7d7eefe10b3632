// A file to whose end records are written, even while others write there.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace weft {

// Thread rule: any thread. A record is one write to the end of the file, so that those of several threads and processes
// do not mix. A record that cannot be written is lost with one warning, and the computation goes on.
class LineFile {
 public:
  // A path, STDERR or STDOUT. `warn` may be empty. A file that would grow beyond `most` bytes is left, and PATH.1 begins, then PATH.2;
  // 0: no limit.
  LineFile(std::string path, std::function<void(std::string)> warn, int64_t most = 0)
      : path_(std::move(path)), warn_(std::move(warn)), most_(most) {}
  void Write(std::string_view record);

 private:
  // The file that has room for a record of so many bytes, open; -1 with errno.
  int Open(size_t bytes);
  const std::string path_;
  const std::function<void(std::string)> warn_;
  const int64_t most_;
  std::atomic<int64_t> number_{0};  // of the file that is written
  std::atomic<bool> warned_{false};
};

}  // namespace weft
