// See faults.h.
#include "tests/pjrt/fake/faults.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "src/runtime/mutex.h"

namespace weft::pjrt::fake {
namespace {

Mutex mutex;
std::shared_ptr<const Faults> current ABSL_GUARDED_BY(mutex);

}  // namespace

Counts counts;

bool Faults::Names(const std::vector<std::string>& functions, std::string_view function) {
  return std::ranges::find(functions, function) != functions.end();
}

absl::Status Faults::Call(std::string_view function) const {
  absl::Status status;
  for (const std::unique_ptr<Failure>& failure : failures) {
    if (failure->function != function) continue;
    if (++failure->calls != failure->call && failure->call != 0) continue;
    status = absl::Status(failure->code, absl::StrCat("fake: call ", failure->call, " of ", function, " fails"));
  }
  return status;
}

absl::StatusOr<std::shared_ptr<const Faults>> Faults::Parse(std::string_view text) {
  auto faults = std::make_shared<Faults>();
  const struct {
    std::string_view name;
    int64_t* value;
  } numbers[] = {{"devices", &faults->devices},     {"memory", &faults->memory},
                 {"slow_ms", &faults->slow_ms},     {"slow_compile_ms", &faults->slow_compile_ms},
                 {"functions", &faults->functions}, {"major", &faults->major},
                 {"minor", &faults->minor},         {"hangs", &faults->hanging_device},
                 {"portable", &faults->portable}};
  for (const std::string_view setting : absl::StrSplit(text, ';', absl::SkipWhitespace())) {
    const std::pair<std::string_view, std::string_view> pair = absl::StrSplit(setting, absl::MaxSplits('=', 1));
    const auto& [name, value] = pair;
    const std::vector<std::string> parts = absl::StrSplit(value, ':');
    bool right = true;
    if (name == "extensions") {
      faults->extensions = true;
    } else if (name == "no_initialize") {
      faults->initializes = false;
    } else if (name == "signals") {
      faults->signals = true;
    } else if (name == "refuses_load") {
      faults->refuses_load = true;
    } else if (name == "ignores_portable") {
      faults->ignores_portable = true;
    } else if (name == "turned") {
      faults->turned = true;
    } else if (name == "keeps_device") {
      faults->keeps_device = true;
    } else if (name == "refuses") {
      faults->refused = value;
    } else if (name == "missing") {
      faults->missing.emplace_back(value);
    } else if (name == "silent") {
      faults->silent.emplace_back(value);
    } else if (name == "last_zero") {
      faults->last_zero.emplace_back(value);
    } else if (name == "blocks") {
      faults->blocking.emplace_back(value);
    } else if (name == "blocks_after") {
      faults->blocking_after.emplace_back(value);
    } else if (name == "dies") {
      right = parts.size() == 2 && absl::SimpleAtoi(parts[0], &faults->dying_device) &&
              absl::SimpleAtoi(parts[1], &faults->last_launch);
    } else if (name == "fail") {
      auto failure = std::make_unique<Failure>();
      int code = 0;
      failure->function = parts[0];
      right = parts.size() == 3 && absl::SimpleAtoi(parts[1], &failure->call) && absl::SimpleAtoi(parts[2], &code);
      failure->code = static_cast<absl::StatusCode>(code);
      faults->failures.push_back(std::move(failure));
    } else {
      right = false;
      for (const auto& number : numbers) {
        if (name == number.name) right = absl::SimpleAtoi(value, number.value);
      }
    }
    if (!right) return absl::InvalidArgumentError(absl::StrCat("fake: what is '", setting, "'?"));
  }
  return faults;
}

std::shared_ptr<const Faults> Current() {
  {
    MutexLock lock(mutex);
    if (current != nullptr) return current;
  }
  const char* const text = std::getenv("WEFT_FAKE");
  auto parsed = Faults::Parse(text == nullptr ? "" : text);
  if (!parsed.ok()) std::abort();  // a test's mistake
  MutexLock lock(mutex);
  if (current == nullptr) current = *std::move(parsed);
  return current;
}

void Set(std::shared_ptr<const Faults> faults) {
  MutexLock lock(mutex);
  current = std::move(faults);
}

}  // namespace weft::pjrt::fake
