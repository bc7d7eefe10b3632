// See retention.h.
#include "serialization/retention.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "serialization/checkpoint_reader.h"
#include "serialization/limits.h"
#include "serialization/tree.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr std::string_view kPointerLine = "weft pointer 1\n";
constexpr size_t kLongestName = 255;  // NAME_MAX

// Returns the name that a pointer of the folder holds; empty for other files and after errors, which concern no caller.
std::string Pointed(const FilePlace& place, const std::string& name) {
  FileInfo info;
  if (place.folder.fs()->Stat(place.folder.fd(), name.c_str(), &info) != 0 || info.kind != FileKind::kRegular ||
      info.size > static_cast<int64_t>(kMostPointerBytes)) {
    return {};
  }
  const absl::StatusOr<File> file = File::OpenIn(place.folder, name, {.read = true, .no_follow = true});
  if (!file.ok()) return {};
  std::string bytes(static_cast<size_t>(info.size), '\0');
  if (!file->ReadAt(0, std::as_writable_bytes(std::span(bytes))).ok() || !IsPointer(bytes)) return {};
  return NameInPointer(bytes, name).value_or("");
}

// Returns the header of a file of the folder that is a checkpoint.
std::optional<HeaderRecord> HeaderIn(const FilePlace& place, const std::string& name) {
  FileInfo info;
  if (place.folder.fs()->Stat(place.folder.fd(), name.c_str(), &info) != 0 || info.kind != FileKind::kRegular) {
    return std::nullopt;  // a pipe would be waited for
  }
  absl::StatusOr<File> file = File::OpenIn(place.folder, name, {.read = true, .no_follow = true});
  return file.ok() ? HeaderOf(*std::move(file)) : std::nullopt;
}

}  // namespace

bool IsNameBeside(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name != "." && name != ".." && IsCleanText(name) &&
         name.find('/') == std::string_view::npos && name.find('\n') == std::string_view::npos;
}

absl::StatusOr<StepName> StepName::Of(std::string_view path) {
  const std::string_view base = BaseNameOf(path);
  const size_t at = base.find(kStep);
  if (at == std::string_view::npos || base.find(kStep, at + 1) != std::string_view::npos) {
    return UserError("the last part of '", path,
                     "' has to have {step} in it, once, where files are kept by their step");
  }
  StepName name;
  name.folder_ = path.substr(0, path.size() - base.size());
  name.before_ = base.substr(0, at);
  name.after_ = base.substr(at + kStep.size());
  return name;
}

std::string StepName::Path(int64_t step) const { return absl::StrCat(folder_, before_, step, after_); }

std::optional<int64_t> StepName::StepOf(std::string_view name) const {
  if (!name.starts_with(before_) || !name.ends_with(after_) || name.size() <= before_.size() + after_.size()) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(before_.size(), name.size() - before_.size() - after_.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || absl::StrCat(step) != digits) return std::nullopt;
  return step;
}

std::optional<HeaderRecord> HeaderOf(File file) {
  const auto reader = CheckpointReader::Open(std::move(file), {.verify = Verify::kUse});
  if (!reader.ok()) return std::nullopt;
  return (*reader)->header();
}

void RemoveOlder(const FilePlace& place, const StepName& name, int64_t step, const Retention& retention) {
  if (retention.keep_last <= 0 || !place.readable) return;
  FileSystem* const fs = place.folder.fs();
  std::vector<std::string> names;
  if (fs->List(place.folder.fd(), ".", &names) < 0) return;
  struct Old {
    int64_t step;
    std::string name;
    std::vector<BaseRecord> bases;
  };
  std::vector<Old> older;
  std::set<std::string> needed;  // by pointers and by files that stay
  for (const std::string& other : names) {
    std::optional<HeaderRecord> header = HeaderIn(place, other);
    const std::optional<int64_t> its = name.StepOf(other);
    if (header.has_value() && its.has_value() && *its < step && header->step == *its) {
      older.push_back({*its, other, std::move(header->bases)});
    } else if (header.has_value()) {
      for (const BaseRecord& base : header->bases) needed.insert(base.name);
    } else if (std::string target = Pointed(place, other); !target.empty()) {
      needed.insert(std::move(target));
    }
  }
  std::sort(older.begin(), older.end(), [](const Old& a, const Old& b) { return a.step > b.step; });
  // A base is older than what takes parts from it: one pass from the newest to the oldest.
  int64_t left = retention.keep_last - 1;
  for (const Old& old : older) {
    const bool stays =
        left-- > 0 || (retention.keep_every > 0 && old.step % retention.keep_every == 0) || needed.contains(old.name);
    if (!stays) {
      (void)fs->Unlink(place.folder.fd(), old.name.c_str());
      continue;
    }
    for (const BaseRecord& base : old.bases) needed.insert(base.name);
  }
}

std::string PointerTo(std::string_view name) { return absl::StrCat(kPointerLine, name, "\n"); }

bool IsPointer(std::string_view first_bytes) { return first_bytes.starts_with(kPointerLine); }

absl::StatusOr<std::string> NameInPointer(std::string_view bytes, const std::string& file) {
  std::string_view name = bytes.substr(std::min(bytes.size(), kPointerLine.size()));
  if (IsPointer(bytes) && name.ends_with('\n')) {
    name.remove_suffix(1);
    if (IsNameBeside(name)) return std::string(name);
  }
  return absl::DataLossError(
      absl::StrCat("'", file, "' is a pointer that does not say one name of a file beside it; its second line has to"));
}

}  // namespace weft
