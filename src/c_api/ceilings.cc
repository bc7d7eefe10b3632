// See ceilings.h. The file is one line of JSON, as the command writes it: {"cpu": "…", "bytes_per_second": 41200000000, "f32": …}.
#include "src/c_api/ceilings.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "serialization/compile_cache.h"
#include "src/data/whole_file.h"
#include "src/runtime/json_text.h"
#include "src/runtime/thread_pool.h"

namespace weft::c_api {
namespace {

// The processor's name, as Linux has it.
std::string Model() {
  constexpr size_t kFirst = 4096;  // the first processor's lines
  const auto text = data::ReadFirstBytes(PosixFileSystem(), "/proc/cpuinfo", kFirst);
  if (!text.ok()) return "unknown";
  const size_t at = text->find("model name");
  const size_t colon = text->find(':', at);
  if (at == std::string::npos || colon == std::string::npos) return "unknown";
  return std::string(absl::StripAsciiWhitespace(text->substr(colon + 1, text->find('\n', colon) - colon - 1)));
}

// "some-cpu-x86-64-avx512-2-threads"
std::string FileNameOf(std::string_view machine) {
  std::string name;
  for (const char c : machine) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) name += c;
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && !name.empty() && name.back() != '-') name += '-';
  }
  return name;
}

// The number behind a key; 0 where there is none.
int64_t NumberIn(std::string_view json, std::string_view key) {
  const std::string spelled = absl::StrCat("\"", key, "\": ");
  const size_t at = json.find(spelled);
  int64_t number = 0;
  if (at != json.npos) std::from_chars(json.data() + at + spelled.size(), json.data() + json.size(), number);
  return std::max<int64_t>(number, 0);
}

}  // namespace

Machine MachineOf(const Context& context) {
  Machine machine;
  const std::string& kind = context.device()->kind;
  if (!absl::StartsWith(kind, "x86-64")) return machine;
  const int64_t threads = context.settings().integer(Option::kThreads);
  machine.name = absl::StrCat(Model(), ", ", kind, ", ", threads > 0 ? threads : AvailableCpus(), " threads");
  if (context.cache() == nullptr) return machine;
  machine.file = absl::StrCat(context.cache()->directory(), "/ceilings-", FileNameOf(machine.name), ".json");
  constexpr size_t kMostBytes = 4096;
  const auto text = data::ReadFirstBytes(PosixFileSystem(), machine.file, kMostBytes);
  if (!text.ok() || !absl::StrContains(*text, absl::StrCat("\"cpu\": ", JsonText(machine.name)))) return machine;
  machine.memory = NumberIn(*text, "bytes_per_second");
  machine.f32 = NumberIn(*text, "f32");
  machine.f64 = NumberIn(*text, "f64");
  machine.bf16 = NumberIn(*text, "bf16");
  machine.i8 = NumberIn(*text, "i8");
  return machine;
}

}  // namespace weft::c_api
