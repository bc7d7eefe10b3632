// One line on a terminal that says how far something long has come. Where stderr is no terminal nothing is written.
#pragma once

#include <cstdint>
#include <string>

namespace weft::cli {

class Progress {
 public:
  explicit Progress(std::string what);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // removes the line

  // At most ten times a second something is written.
  void Tell(uint64_t done, uint64_t total);
  // A callback for weft_convert_options.progress; user_data is the Progress.
  static int32_t Told(void* user_data, uint64_t done, uint64_t total) noexcept;

 private:
  const std::string what_;
  const bool shown_;
  bool written_ = false;
  int64_t next_ = 0;  // milliseconds
};

}  // namespace weft::cli
