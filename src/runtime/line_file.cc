// See line_file.h.
#include "src/runtime/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace weft {

int LineFile::Open(size_t bytes) {
  while (true) {
    int64_t number = number_.load(std::memory_order_relaxed);
    const std::string path = number == 0 ? path_ : absl::StrCat(path_, ".", number);
    // Without O_NONBLOCK a FIFO that nobody reads would be waited for. Who does read it is waited for, as by STDERR.
    const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
    if (file >= 0) fcntl(file, F_SETFL, O_APPEND);
    struct stat about;
    if (file < 0 || most_ == 0 || fstat(file, &about) != 0) return file;
    const bool fits = about.st_size + static_cast<int64_t>(bytes) <= most_;
    // A record that is larger than any file may be has one to itself; what is no file has no size.
    if (fits || about.st_size == 0 || !S_ISREG(about.st_mode)) return file;
    close(file);
    number_.compare_exchange_strong(number, number + 1);
  }
}

void LineFile::Write(std::string_view record) {
  const bool standard = path_ == "STDERR" || path_ == "STDOUT";
  const int file = path_ == "STDERR" ? STDERR_FILENO : path_ == "STDOUT" ? STDOUT_FILENO : Open(record.size());
  int error = file < 0 ? errno : 0;
  if (file >= 0) {
    ssize_t written;
    do {
      written = write(file, record.data(), record.size());
    } while (written < 0 && errno == EINTR);
    if (written != static_cast<ssize_t>(record.size())) error = written < 0 ? errno : ENOSPC;
    if (!standard) close(file);
  }
  if (error == 0 || !warn_ || warned_.exchange(true)) return;
  const char* const why = error == ENXIO ? "it is a FIFO that nobody reads, or a socket" : std::strerror(error);
  warn_(absl::StrCat("'", path_, "' cannot be written: ", why, "; what follows for it is lost"));
}

}  // namespace weft
