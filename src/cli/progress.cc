// See progress.h.
#include "src/cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace weft::cli {
namespace {

int64_t Milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Progress::Progress(std::string what) : what_(std::move(what)), shown_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (written_) std::fputs("\r\033[K", stderr);
}

void Progress::Tell(uint64_t done, uint64_t total) {
  if (!shown_ || total == 0) return;
  const int64_t now = Milliseconds();
  if (now < next_) return;
  next_ = now + 100;
  written_ = true;
  const auto percent = static_cast<unsigned>(static_cast<double>(done) / static_cast<double>(total) * 100);
  std::fprintf(stderr, "\r%s: %u %% of %llu MiB\033[K", what_.c_str(), percent,
               static_cast<unsigned long long>(total >> 20));
  std::fflush(stderr);
}

int32_t Progress::Told(void* user_data, uint64_t done, uint64_t total) noexcept {
  static_cast<Progress*>(user_data)->Tell(done, total);
  return 0;
}

}  // namespace weft::cli
