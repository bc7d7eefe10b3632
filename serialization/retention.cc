// See retention.h.
#include "serialization/retention.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "serialization/checkpoint_schema.h"
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

// Tells whether the file is a checkpoint whose header has the step.
bool IsCheckpointOf(const FilePlace& place, const std::string& name, int64_t step) {
  absl::StatusOr<File> file = File::OpenIn(place.folder, name, {.read = true, .no_follow = true});
  if (!file.ok()) return false;
  const absl::StatusOr<FileInfo> known = file->Info();
  if (!known.ok() || known->kind != FileKind::kRegular) return false;
  const auto size = static_cast<uint64_t>(known->size);
  std::byte raw[kPrologueBytes];
  if (size < sizeof(raw) || !file->ReadAt(0, raw).ok() || !DecodePrologue(raw, name).ok()) return false;
  ByteSource source(&*file, kPrologueBytes, size);
  Frame frame;
  if (!FrameScanner(&source).Next(&frame).ok() || frame.kind != FrameKind::kHeader) return false;
  const absl::StatusOr<HeaderRecord> header = DecodeHeader(frame, name);
  return header.ok() && header->step == step;
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

void RemoveOlder(const FilePlace& place, const StepName& name, int64_t step, const Retention& retention) {
  if (retention.keep_last <= 0 || !place.readable) return;
  FileSystem* const fs = place.folder.fs();
  std::vector<std::string> names;
  if (fs->List(place.folder.fd(), ".", &names) < 0) return;
  std::vector<std::pair<int64_t, std::string>> older;
  std::set<std::string> pointed;
  for (const std::string& other : names) {
    const std::optional<int64_t> its = name.StepOf(other);
    if (its.has_value() && *its < step && IsCheckpointOf(place, other, *its)) {
      older.emplace_back(*its, other);
    } else if (std::string target = Pointed(place, other); !target.empty()) {
      pointed.insert(std::move(target));
    }
  }
  std::sort(older.rbegin(), older.rend());
  for (size_t i = static_cast<size_t>(std::min<int64_t>(retention.keep_last - 1, std::ssize(older))); i < older.size();
       ++i) {
    const auto& [its, file] = older[i];
    if ((retention.keep_every > 0 && its % retention.keep_every == 0) || pointed.contains(file)) continue;
    (void)fs->Unlink(place.folder.fd(), file.c_str());
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
