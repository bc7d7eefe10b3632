// See code_map.h. The form of the dump is in the kernel's tools/perf/Documentation/jitdump-specification.txt.
#include "src/backends/cpu/jit/code_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/runtime/clock.h"
#include "src/runtime/fork.h"
#include "src/runtime/lasting.h"
#include "src/runtime/mutex.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr uint32_t kMachine = 62;  // EM_X86_64

struct DumpHeader {
  uint32_t magic = 0x4A695444, version = 1, bytes = sizeof(DumpHeader), machine = kMachine, pad = 0, process = 0;
  uint64_t time = 0, flags = 0;
};
struct DumpRecord {
  uint32_t id = 0;  // a function was loaded
  uint32_t bytes = 0;
  uint64_t time = 0;
  uint32_t process = 0, thread = 0;
  uint64_t address = 0, code_address = 0, code_bytes = 0, number = 0;
};
static_assert(sizeof(DumpHeader) == 40 && sizeof(DumpRecord) == 56);

void Append(const void* data, size_t bytes, std::string* out) { out->append(static_cast<const char*>(data), bytes); }

absl::Status Unwritable(const std::string& path, const char* what) {
  return UserErrorOf(absl::StatusCode::kUnavailable, "'", path, "' ", what, ": ", std::strerror(errno),
                     "; perf will not know the names of generated code");
}

// Seconds since this process began; below 0 if the system does not say.
double AgeOfProcess() {
  std::string text(1 << 10, '\0');
  const int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = file < 0 ? 0 : read(file, text.data(), text.size());
  if (file >= 0) close(file);
  text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  // Behind the program's name, which may hold anything, the 20th word is the start in ticks since the machine's.
  constexpr size_t kStart = 19;
  const size_t name = text.rfind(')');
  if (name == std::string::npos) return -1;
  const std::vector<std::string_view> words =
      absl::StrSplit(std::string_view(text).substr(name + 1), ' ', absl::SkipEmpty());
  int64_t ticks = 0;
  timespec now;
  if (words.size() <= kStart || !absl::SimpleAtoi(words[kStart], &ticks) || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
    return -1;
  const double began = static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::max(0.0, static_cast<double>(now.tv_sec) - began);
}

// True if a file of this name can only be of a process that had this one's number before.
bool IsLeftOver(const std::string& path) {
  constexpr double kSlack = 2;  // seconds: clocks of files are coarse
  struct stat file;
  if (lstat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid()) return false;
  const double age = static_cast<double>(time(nullptr) - file.st_mtime), process = AgeOfProcess();
  return process >= 0 && age > process + kSlack;
}

// The process's file of one form.
class PerfOutput {
 public:
  void HoldOverFork() { weft::HoldOverFork(mutex_, ForkOrder::kThen); }

  absl::Status Add(PerfFile form, std::span<const LoadedFunction> functions) {
    MutexLock lock(mutex_);
    // A fork's child has a file of its own.
    if (process_ != getpid()) {
      if (file_ >= 0) close(file_);
      file_ = -1;
      process_ = getpid();
      state_ = Open(form);
      told_ = false;
    }
    // It is told once.
    if (!state_.ok()) return std::exchange(told_, true) ? absl::OkStatus() : state_;
    std::string text;
    for (const LoadedFunction& function : functions) {
      if (form == PerfFile::kMap) {
        absl::StrAppend(&text, absl::Hex(function.address), " ", absl::Hex(function.bytes), " ", function.name, "\n");
      } else {
        AppendRecord(function, &text);
      }
    }
    state_ = Write(text);
    told_ = !state_.ok();
    return state_;
  }

 private:
  absl::Status Open(PerfFile form) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const char* const folder = std::getenv("JITDUMPDIR");
    path_ =
        absl::StrCat(folder != nullptr && *folder != 0 ? folder : "/tmp", form == PerfFile::kMap ? "/perf-" : "/jit-",
                     process_, form == PerfFile::kMap ? ".map" : ".dump");
    if (IsLeftOver(path_)) unlink(path_.c_str());
    // perf takes the dump for one by a mapping of it that may be executed.
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file_ < 0) return Unwritable(path_, "cannot be made");
    if (form == PerfFile::kMap) return absl::OkStatus();
    DumpHeader header;
    header.process = static_cast<uint32_t>(process_);
    header.time = static_cast<uint64_t>(MonotonicNow());
    WEFT_RETURN_IF_ERROR(Write({reinterpret_cast<const char*>(&header), sizeof(header)}));
    void* const mark =
        mmap(nullptr, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_EXEC, MAP_PRIVATE, file_, 0);
    return mark == MAP_FAILED ? Unwritable(path_, "cannot be mapped as code") : absl::OkStatus();
  }

  void AppendRecord(const LoadedFunction& function, std::string* out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    DumpRecord record;
    record.bytes = static_cast<uint32_t>(sizeof(record) + function.name.size() + 1 + function.bytes);
    record.time = static_cast<uint64_t>(MonotonicNow());
    record.process = static_cast<uint32_t>(process_);
    record.thread = static_cast<uint32_t>(syscall(SYS_gettid));
    record.address = record.code_address = function.address;
    record.code_bytes = function.bytes;
    record.number = number_++;
    Append(&record, sizeof(record), out);
    Append(function.name.c_str(), function.name.size() + 1, out);
    Append(reinterpret_cast<const void*>(function.address), function.bytes, out);
  }

  absl::Status Write(std::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ssize_t written;
    do {
      written = write(file_, bytes.data(), bytes.size());
    } while (written < 0 && errno == EINTR);
    if (written >= 0 && written < static_cast<ssize_t>(bytes.size())) errno = ENOSPC;
    return written == static_cast<ssize_t>(bytes.size()) ? absl::OkStatus() : Unwritable(path_, "cannot be written");
  }

  Mutex mutex_;
  pid_t process_ ABSL_GUARDED_BY(mutex_) = -1;
  int file_ ABSL_GUARDED_BY(mutex_) = -1;
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string path_ ABSL_GUARDED_BY(mutex_);
  absl::Status state_ ABSL_GUARDED_BY(mutex_);
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::Status AddToPerfFile(PerfFile form, std::span<const LoadedFunction> functions) {
  static std::array<Lasting<PerfOutput>, 2> files;
  if (form == PerfFile::kOff || functions.empty()) return absl::OkStatus();
  return files[form == PerfFile::kMap ? 0 : 1].Get().Add(form, functions);
}

}  // namespace weft::cpu
