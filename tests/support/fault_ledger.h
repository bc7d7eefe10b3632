// Writes down the faults that were injected into storage, for the ledger in docs/reliability.md: distinct (test and scenario, number and name of the call,
// errno, once or for ever), appended to the file that WEFT_FAULT_LEDGER names when the process ends.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weft::testing {

class FaultLedger {
 public:
  static void Note(const std::string& scenario, int64_t n, const char* call, int error, const char* kind) {
    static FaultLedger* const ledger = new FaultLedger;
    if (ledger->path_ == nullptr) return;
    const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    if (test == nullptr) return;
    const std::lock_guard lock(ledger->mutex_);
    ledger->lines_.insert(absl::StrCat(test->test_suite_name(), ".", test->name(), "\t", scenario, "\t", n, "\t", call, "\t",
                                       error == 0 ? "short" : strerrorname_np(error), "\t", kind, "\n"));
  }

 private:
  FaultLedger() {
    if (path_ == nullptr) return;
    static FaultLedger* self = nullptr;
    self = this;
    std::atexit([] {
      std::FILE* const out = std::fopen(self->path_, "a");
      if (out == nullptr) return;
      for (const std::string& line : self->lines_) std::fputs(line.c_str(), out);
      std::fclose(out);
    });
  }
  const char* const path_ = std::getenv("WEFT_FAULT_LEDGER");
  std::mutex mutex_;
  std::set<std::string> lines_;
};

// The errors that a walk goes through: a few, or with WEFT_FULL_FAULTS all that a call may give.
inline std::vector<int> FaultErrors(std::vector<int> few) {
  if (std::getenv("WEFT_FULL_FAULTS") == nullptr) return few;
  return {EIO,   ENOSPC, EDQUOT, EFBIG,  EACCES, EPERM,  EROFS,  ENOMEM, EMFILE, ENFILE,    EINVAL,   ESTALE, ETIMEDOUT, ENXIO,
          ENODEV, EBUSY, ELOOP,  ENOTDIR, EISDIR, ENOENT, ENOSYS, EOPNOTSUPP, EOVERFLOW, ENETDOWN, EHOSTDOWN, EREMOTEIO, EBADF, ENOLCK};
}

}  // namespace weft::testing
