// `weft ckpt repair` and `prune`: what is to be kept of a damaged file, and of many files.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <set>

#include "src/cli/ckpt.h"
#include "src/cli/progress.h"

namespace weft::cli {
namespace {

constexpr std::string_view kStep = "{step}";

// "run/step-{step}.weft" in parts.
struct Pattern {
  std::string folder, before, after;

  bool Read(std::string_view text) {
    const size_t slash = text.rfind('/');
    folder = slash == std::string_view::npos ? "." : std::string(text.substr(0, slash + 1));
    const std::string_view name = slash == std::string_view::npos ? text : text.substr(slash + 1);
    const size_t at = name.find(kStep);
    if (at == std::string_view::npos) return false;
    before = name.substr(0, at);
    after = name.substr(at + kStep.size());
    return after.find(kStep) == std::string::npos && folder.find(kStep) == std::string::npos;
  }
  // Tells whether the name is of the pattern: nothing but digits between its ends.
  bool Matches(std::string_view name, uint64_t* step) const {
    if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
      return false;
    const std::string_view digits = name.substr(before.size(), name.size() - before.size() - after.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *step);
    return error == std::errc() && end == digits.data() + digits.size();
  }
};

struct Found {
  uint64_t step;
  std::string path;
  List bases;  // names of files beside it
};

// The files that others of the list take parts from while those stay: a file names all of its bases.
std::set<std::string> Needed(const std::vector<Found>& found, const std::set<uint64_t>& steps, uint64_t every) {
  std::set<std::string> needed;
  for (auto file = found.rbegin(); file != found.rend(); ++file) {
    const std::string name = file->path.substr(file->path.rfind('/') + 1);
    const bool stays = steps.contains(file->step) || (every > 0 && file->step % every == 0) || needed.contains(name);
    for (const Value& base : stays ? file->bases : List()) {
      if (const auto* text = std::get_if<std::string>(&base.data)) needed.insert(*text);
    }
  }
  return needed;
}

bool Number(const Arguments& arguments, std::string_view flag, uint64_t* out) {
  const std::string_view text = arguments.value(flag, "0");
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && (*out > 0 || !arguments.has(flag));
}

// Regular files of the pattern that hold tensors; links, folders and whatever else has such a name are others'.
bool FindAll(const Pattern& pattern, std::vector<Found>* found, std::string* problem) {
  DIR* const folder = opendir(pattern.folder.c_str());
  if (folder == nullptr) {
    *problem = pattern.folder + ": " + std::strerror(errno);
    return false;
  }
  while (const dirent* entry = readdir(folder)) {
    uint64_t step = 0;
    if (!pattern.Matches(entry->d_name, &step)) continue;
    const std::string path = (pattern.folder == "." ? "" : pattern.folder) + entry->d_name;
    struct stat seen = {};
    if (lstat(path.c_str(), &seen) != 0 || !S_ISREG(seen.st_mode)) continue;
    Fields about;
    std::string ignored;
    if (!Describe(path, &about, &ignored)) continue;
    const std::string kind = TextIn(about, "kind");
    if (kind == "checkpoint" || kind == "safetensors") found->push_back({step, path, ListIn(about, "bases")});
  }
  closedir(folder);
  std::ranges::sort(
      *found, [](const Found& a, const Found& b) { return a.step != b.step ? a.step < b.step : a.path < b.path; });
  return true;
}

}  // namespace

int Repair(const Arguments& arguments) {
  Work work;
  const std::string in(arguments.more[0]), out(arguments.more[1]);
  struct stat a = {}, b = {};
  if (stat(in.c_str(), &a) == 0 && stat(out.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
    return Misuse("repair writes a new file; '" + out + "' is the damaged one");
  }
  if (!work.Start()) return Fail(work.problem);
  weft_tree* made = nullptr;
  if (!work.Done(weft_checkpoint_salvage(work.context.get(), in.data(), in.size(), out.data(), out.size(), &made))) {
    return Fail(work.problem);
  }
  const Tree tree(made);
  Fields said;
  if (!FieldsOf(made, WEFT_TREE_ROOT, &said, &work.problem)) return Fail(work.problem);
  const std::string problem = TextIn(said, "problem");
  Fields report = {{"whole", static_cast<int64_t>(ListIn(said, "whole").size())}, {"lost", ListIn(said, "lost")}};
  if (!problem.empty()) report.emplace_back("problem", problem);
  Print(report, arguments.has("--json"));
  return problem.empty() ? kDone : kFailed;
}

int Prune(const Arguments& arguments) {
  Pattern pattern;
  uint64_t last = 0, every = 0;
  if (!pattern.Read(arguments.more[0])) {
    return Misuse("'" + std::string(arguments.more[0]) + "' has no {step} in its file's name, or more than one");
  }
  if (!Number(arguments, "--keep-last", &last) || !Number(arguments, "--keep-every", &every)) {
    return Misuse("--keep-last and --keep-every take whole numbers above 0");
  }
  if (last == 0) return Misuse("how many last steps are to be kept? --keep-last says it");
  std::vector<Found> found;
  std::string problem;
  if (!FindAll(pattern, &found, &problem)) return Fail(problem);
  std::set<uint64_t> steps;
  for (const Found& file : found) steps.insert(file.step);
  while (steps.size() > last) steps.erase(steps.begin());
  const std::set<std::string> needed = Needed(found, steps, every);
  List removed, kept;
  for (const Found& file : found) {
    if (steps.contains(file.step) || (every > 0 && file.step % every == 0) ||
        needed.contains(file.path.substr(file.path.rfind('/') + 1))) {
      kept.push_back(file.path);
    } else if (!arguments.has("--dry-run") && unlink(file.path.c_str()) != 0 && errno != ENOENT) {
      problem = file.path + ": " + std::strerror(errno);
    } else {
      removed.push_back(file.path);
    }
  }
  Print({{"removed", std::move(removed)}, {"kept", std::move(kept)}}, arguments.has("--json"));
  return problem.empty() ? kDone : Fail(problem);
}

}  // namespace weft::cli
