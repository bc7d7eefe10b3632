// See files.h.
#include "src/cli/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft::cli {
namespace {

// Empty for a regular file.
std::string WhatItIs(mode_t mode) {
  if (S_ISREG(mode)) return "";
  const char* const kind = S_ISDIR(mode)    ? "a directory"
                           : S_ISFIFO(mode) ? "a FIFO"
                           : S_ISSOCK(mode) ? "a socket"
                                            : "a device";
  return std::string("it is ") + kind + ", not a regular file";
}

// The error of a call that failed, or what a path that cannot be opened is instead of a file.
std::string Reason(const std::string& path, int error) {
  struct stat seen = {};
  if (error == ENXIO && stat(path.c_str(), &seen) == 0 && !S_ISREG(seen.st_mode)) return WhatItIs(seen.st_mode);
  return std::strerror(error);
}

bool Fails(const std::string& path, const std::string& why, std::string* problem) {
  *problem = path + ": cannot be read: " + why;
  return false;
}

// A descriptor of a regular file, or -1 and the reason.
int OpenRegular(const std::string& path, std::string* why) {
  // Without O_NONBLOCK opening a FIFO waits for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return *why = Reason(path, errno), -1;
  struct stat seen = {};
  *why = fstat(file, &seen) != 0 ? std::strerror(errno) : WhatItIs(seen.st_mode);
  if (why->empty()) return file;
  close(file);
  return -1;
}

}  // namespace

bool CanBeRead(const std::string& path, std::string* problem) {
  std::string why;
  const int file = OpenRegular(path, &why);
  if (file < 0) return Fails(path, why, problem);
  close(file);
  return true;
}

bool ReadFile(const std::string& path, std::string* content, std::string* problem) {
  std::string why;
  const int file = OpenRegular(path, &why);
  if (file < 0) return Fails(path, why, problem);
  content->clear();
  std::string block(1 << 16, '\0');
  for (ssize_t got = 1; why.empty() && got != 0;) {
    got = read(file, block.data(), block.size());
    if (got > 0) content->append(block, 0, static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) why = std::strerror(errno);
  }
  close(file);
  return why.empty() || Fails(path, why, problem);
}

}  // namespace weft::cli
