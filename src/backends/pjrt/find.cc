// See find.h.
#include "src/backends/pjrt/find.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft::pjrt {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

struct Wheel {
  std::string_view platform;  // the plugin's own name for it
  std::string_view folder;    // in site-packages; ends in * where the rest is a version
  std::string_view library;
  std::string_view advice;
};
constexpr Wheel kWheels[] = {
    {"tpu", "libtpu", "libtpu.so", "the Python package libtpu has one"},
    {"cuda", "jax_plugins/xla_cuda*", "xla_cuda_plugin.so",
     "the Python packages jax-cuda13-pjrt and jax-cuda12-pjrt have one"},
    {"rocm", "jax_plugins/xla_rocm*", "xla_rocm_plugin.so", "the Python packages named jax-rocm…-pjrt have one"},
};

std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Returns the matches of `pattern` in `folder`: the folder itself, or those whose last part begins so, the greatest
// name first.
Paths Matching(const fs::path& folder, std::string_view pattern) {
  if (!pattern.ends_with('*')) return {folder / pattern};
  pattern.remove_suffix(1);
  const size_t slash = pattern.rfind('/');
  const fs::path parent = slash == pattern.npos ? folder : folder / pattern.substr(0, slash);
  const std::string_view start = pattern.substr(slash == pattern.npos ? 0 : slash + 1);
  Paths found;
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(start)) found.push_back(at->path());
  }
  std::ranges::sort(found, std::greater<>());
  return found;
}

// Folders of Python packages, without asking Python.
Paths SitePackages() {
  Paths prefixes, folders;
  const auto add = [&](fs::path prefix) {
    if (!prefix.empty() && std::ranges::find(prefixes, prefix) == prefixes.end()) prefixes.push_back(std::move(prefix));
  };
  add(Variable("VIRTUAL_ENV"));
  add(Variable("CONDA_PREFIX"));
  for (const std::string_view folder : absl::StrSplit(Variable("PATH"), ':', absl::SkipEmpty())) {
    std::error_code error;
    if (!fs::exists(fs::path(folder) / "python3", error)) continue;
    add(fs::path(folder).parent_path());
    break;
  }
  if (const std::string_view home = Variable("HOME"); !home.empty()) add(fs::path(home) / ".local");
  add("/usr/local");
  add("/usr");
  for (const fs::path& prefix : prefixes) {
    for (const fs::path& python : Matching(prefix, "lib/python3*")) {
      folders.push_back(python / "site-packages");
      folders.push_back(python / "dist-packages");
    }
  }
  return folders;
}

Paths LoaderFolders() {
  Paths folders;
  for (const std::string_view folder : absl::StrSplit(Variable("LD_LIBRARY_PATH"), ':', absl::SkipEmpty())) {
    folders.emplace_back(folder);
  }
  for (const char* folder :
       {"/lib", "/lib/x86_64-linux-gnu", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib"})
    folders.emplace_back(folder);
  return folders;
}

}  // namespace

bool IsFor(std::string_view platform, std::string_view plugins) {
  if (platform == "pjrt" || platform == plugins) return true;
  return platform == "gpu" && (plugins == "cuda" || plugins == "rocm");
}

absl::StatusOr<std::string> FindPlugin(std::string_view platform) {
  std::error_code error;
  std::vector<std::string> looked, advice;
  if (platform == "tpu") {
    const fs::path named = Variable("TPU_LIBRARY_PATH");
    if (!named.empty()) {
      if (fs::exists(named, error)) return named.string();
      return UserErrorOf(absl::StatusCode::kNotFound, "TPU_LIBRARY_PATH is '", named.string(),
                         "', where there is no file");
    }
    looked.push_back("TPU_LIBRARY_PATH, which is not set");
  }
  const Paths packages = SitePackages(), folders = LoaderFolders();
  const auto text = [](std::string* to, const fs::path& path) { to->append(path.string()); };
  for (const Wheel& wheel : kWheels) {
    if (!IsFor(platform, wheel.platform)) continue;
    for (const fs::path& package : packages) {
      for (const fs::path& folder : Matching(package, wheel.folder)) {
        if (fs::exists(folder / wheel.library, error)) return (folder / wheel.library).string();
      }
    }
    for (const fs::path& folder : folders) {
      if (fs::exists(folder / wheel.library, error)) return (folder / wheel.library).string();
    }
    looked.push_back(absl::StrCat(wheel.folder, "/", wheel.library, " in ", absl::StrJoin(packages, ", ", text)));
    looked.push_back(absl::StrCat(wheel.library, " in ", absl::StrJoin(folders, ", ", text)));
    advice.emplace_back(wheel.advice);
  }
  return UserErrorOf(absl::StatusCode::kNotFound, "platform ", platform,
                     ": no plugin was found. Looked for: the option plugin and ", "WEFT_PLUGIN, which are not set; ",
                     absl::StrJoin(looked, "; "), ". How to get one: ", absl::StrJoin(advice, "; "),
                     "; or give the path of yours as the option plugin");
}

}  // namespace weft::pjrt
