// See line_file.h.
#include "src/runtime/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace weft {

void LineFile::Write(std::string_view record) {
  const bool standard = path_ == "STDERR" || path_ == "STDOUT";
  const int file = path_ == "STDERR"   ? STDERR_FILENO
                   : path_ == "STDOUT" ? STDOUT_FILENO
                                       : open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
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
  warn_(absl::StrCat("'", path_, "' cannot be written: ", std::strerror(error), "; what follows for it is lost"));
}

}  // namespace weft
