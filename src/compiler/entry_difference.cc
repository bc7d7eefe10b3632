// See entry_difference.h. A canonical form begins with texts, each behind its length ("5:hello"), which program_cache.cc writes; the
// program follows.
#include "src/compiler/entry_difference.h"

#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "src/compiler/canonical.h"
#include "src/ir/text.h"

namespace weft::compiler {
namespace {

constexpr std::string_view kProgram = "weft program 1", kSource = "weft source 1", kDevices = "devices ";
constexpr size_t kShown = 200;  // bytes of a line

// The parts of a key in the order in which they are compared; a form that is not what program_cache.cc writes is all program.
struct Parts {
  std::string_view release, platform, processor, options, devices, program;
  std::string types;
  bool traced = false;  // `program` is the canonical form of a trace
};

bool TakeText(std::string_view* from, std::string_view* out) {
  const size_t colon = from->substr(0, 12).find(':');
  size_t length = 0;
  if (colon == std::string_view::npos || !absl::SimpleAtoi(from->substr(0, colon), &length)) return false;
  if (length > from->size() - colon - 1) return false;
  *out = from->substr(colon + 1, length);
  from->remove_prefix(colon + 1 + length);
  return true;
}

Parts PartsOf(std::string_view canonical) {
  Parts parts = {.program = canonical, .types = {}};
  std::string_view rest = canonical, format, next;
  if (!TakeText(&rest, &format) || (format != kProgram && format != kSource)) return parts;
  Parts read = {.types = {}, .traced = format == kProgram};
  if (read.traced && !TakeText(&rest, &read.release)) return parts;
  if (!TakeText(&rest, &read.platform) || !TakeText(&rest, &read.processor) || !TakeText(&rest, &read.options)) {
    return parts;
  }
  if (std::string_view after = rest; TakeText(&after, &next) && next.starts_with(kDevices)) {
    read.devices = next.substr(kDevices.size());
    rest = after;
  }
  // The types of a mode: four names, which are short.
  std::string_view after = rest;
  std::string types;
  for (int i = 0; i < 4 && TakeText(&after, &next) && next.size() <= 8; ++i) {
    types += (i > 0 ? " " : "") + std::string(next);
    if (i == 3) read.types = types, rest = after;
  }
  read.program = rest;
  return read;
}

std::string TextOf(const Parts& parts) {
  if (!parts.traced) return std::string(parts.program);
  const absl::StatusOr<Ref<const ir::Function>> function = ReadCanonical(parts.program);
  if (!function.ok()) return "";
  ir::Module module;
  module.functions.push_back(*function);
  return ir::Print(module);
}

PartDifference OfPrograms(const Parts& here, const Parts& there) {
  const std::string text_here = TextOf(here), text_there = TextOf(there);
  const std::vector<std::string_view> a = absl::StrSplit(text_here, '\n'), b = absl::StrSplit(text_there, '\n');
  size_t line = 0;
  while (line < a.size() && line < b.size() && a[line] == b[line]) ++line;
  const auto shown = [&](const std::vector<std::string_view>& lines) -> std::string {
    if (line >= lines.size()) return "";
    std::string_view text = lines[line];
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    return std::string(text.substr(0, kShown));
  };
  return {"program", shown(a), shown(b)};
}

}  // namespace

std::vector<PartDifference> DifferencesOf(std::string_view here, std::string_view there) {
  const Parts a = PartsOf(here), b = PartsOf(there);
  std::vector<PartDifference> found;
  const auto compare = [&](const char* part, std::string_view x, std::string_view y) {
    if (x != y) found.push_back({part, std::string(x), std::string(y)});
  };
  compare("release", a.release, b.release);
  compare("platform", a.platform, b.platform);
  compare("processor", a.processor, b.processor);
  compare("options", a.options, b.options);
  compare("devices", a.devices, b.devices);
  compare("types", a.types, b.types);
  if (a.program != b.program || a.traced != b.traced) found.push_back(OfPrograms(a, b));
  return found;
}

std::string_view ProgramIn(std::string_view canonical, bool* traced) {
  const Parts parts = PartsOf(canonical);
  *traced = parts.traced;
  return parts.program;
}

double DistanceOf(std::string_view here, std::string_view there) {
  const Parts a = PartsOf(here), b = PartsOf(there);
  double parts = 0;
  for (const auto& [x, y] :
       {std::pair(a.release, b.release), std::pair(a.platform, b.platform), std::pair(a.processor, b.processor),
        std::pair(a.options, b.options), std::pair(a.devices, b.devices),
        std::pair<std::string_view, std::string_view>(a.types, b.types)}) {
    parts += x != y ? 1 : 0;
  }
  if (a.program == b.program) return parts;
  const auto apart = std::ranges::mismatch(a.program, b.program).in1 - a.program.begin();
  const double longest = static_cast<double>(std::max(a.program.size(), b.program.size()));
  return 10 + parts + 8 * (1 - static_cast<double>(apart) / longest);
}

}  // namespace weft::compiler
