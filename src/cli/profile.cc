// `weft profile`: runs a program with its trace on, and says where the time went.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "src/cli/ceilings.h"
#include "src/cli/command.h"
#include "src/cli/files.h"
#include "src/cli/profile_pictures.h"

extern char** environ;

namespace weft::cli {
namespace {

int Fail(const std::string& text) {
  std::fprintf(stderr, "weft profile: %s\n", text.c_str());
  return kFailed;
}

// A folder of its own that goes with everything in it.
class Folder {
 public:
  Folder() {
    std::error_code none;
    std::string name = std::filesystem::temp_directory_path(none).string() + "/weft-profile-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    if (path_.empty()) return;
    for (const Kind kind : {Kind::kText, Kind::kJson, Kind::kTrace}) std::remove(file(kind).c_str());
    rmdir(path_.c_str());
  }
  bool made() const { return !path_.empty(); }
  enum class Kind { kText, kJson, kTrace };
  // The end of its name says what trace_file writes.
  std::string file(Kind kind) const {
    constexpr const char* kNames[] = {"/report.txt", "/report.json", "/trace.json"};
    return path_ + kNames[static_cast<int>(kind)];
  }

 private:
  std::string path_;
};

// The status of a process as a shell tells it.
int StatusOf(int status) {
  constexpr int kSignal = 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignal + WTERMSIG(status);
}

bool Write(const std::string& path, const std::string& text) {
  std::FILE* const out = std::fopen(path.c_str(), "w");
  if (out == nullptr) return false;
  const bool wrote = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  return std::fclose(out) == 0 && wrote;
}

// The pictures of a trace, and a table of its kernels beside what the machine can do.
int Draw(const std::string& trace, const std::string& folder, bool json) {
  Profile profile;
  std::string kept;
  if (!ReadProfile(trace, &profile)) return Fail("the trace is none of this library's");
  const Ceilings ceilings = KeptCeilings(&kept);
  for (const auto& [name, text] : {std::pair<const char*, std::string>{"roofline.svg", RooflineSvg(profile, ceilings)},
                                   {"memory.svg", MemorySvg(profile)},
                                   {"timeline.svg", TimelineSvg(profile)}}) {
    const std::string path = folder + "/" + name;
    if (!Write(path, text)) return Fail(path + " cannot be written: " + strerror(errno));
  }
  Print(KernelTable(profile, ceilings), json);
  if (json) return kDone;
  std::printf("%s\nroofline.svg, memory.svg and timeline.svg are in %s\n",
              ceilings ? CeilingsText(ceilings).c_str()
                       : "this machine's ceilings are not known: 'weft ceilings' measures them",
              folder.c_str());
  return kDone;
}

int Execute(const Arguments& arguments) {
  std::vector<std::string> words(arguments.rest.begin(), arguments.rest.end());
  if (!arguments.parameter.empty() && !words.empty()) {
    std::fprintf(stderr, "weft profile: PROGRAM or -- COMMAND, not both; 'weft profile --help' says more\n");
    return kMisused;
  }
  if (!arguments.parameter.empty()) words = {"/proc/self/exe", "run", std::string(arguments.parameter)};
  if (words.empty()) {
    std::fprintf(stderr, "weft profile: which PROGRAM, or -- COMMAND? 'weft profile --help' says more\n");
    return kMisused;
  }
  const Folder folder;
  const bool json = arguments.has("--json");
  const std::string trace(arguments.value("--trace", ""));
  if (trace.empty() && !folder.made())
    return Fail("there is no folder for temporary files: " + std::string(strerror(errno)));
  const std::string pictures(arguments.value("--svg", ""));
  const bool draws = arguments.has("--svg");
  std::error_code none;
  if (draws && !std::filesystem::is_directory(pictures, none))
    return Fail("--svg " + pictures + ": there is no such folder");
  if (draws && !trace.empty()) {
    std::fprintf(stderr, "weft profile: --svg or --trace, not both; 'weft profile --help' says more\n");
    return kMisused;
  }
  const Folder::Kind kind = draws ? Folder::Kind::kTrace : json ? Folder::Kind::kJson : Folder::Kind::kText;
  const std::string report = trace.empty() ? folder.file(kind) : trace;
  setenv("WEFT_TRACE_FILE", report.c_str(), 1);
  if (arguments.has("--steps")) setenv("WEFT_TRACE_STEPS", std::string(arguments.value("--steps", "")).c_str(), 1);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ);
  if (error != 0) return Fail("'" + words[0] + "' cannot be run: " + strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return Fail(std::string("waiting for the command: ") + strerror(errno));
  }
  if (trace.empty()) {
    std::string text, problem;
    if (!ReadFile(report, &text, &problem)) {
      return Fail(
          "the command wrote no trace: it made no context, ended without releasing it, or Weft's library there is older");
    }
    if (draws && Draw(text, pictures, json) != kDone) return kFailed;
    if (!draws) std::fwrite(text.data(), 1, text.size(), stdout);
  } else if (access(trace.c_str(), R_OK) == 0) {
    std::printf("the trace is in %s\n", trace.c_str());
  }
  if (StatusOf(status) == 0) return kDone;
  return Fail("'" + words[0] + "' ended with status " + std::to_string(StatusOf(status)));
}

const Registration kProfile(
    {.name = "profile",
     .summary = "runs a program or a command and says which kernels take the time",
     .parameter = "[PROGRAM]",
     .flags = {{"--steps", "lets so many steps by, then traces so many; else all", "SKIP:COUNT"},
               {"--trace", "writes the trace for a viewer there (.svg: a picture of the report) in place of the report",
                "FILE"},
               {"--svg",
                "writes roofline.svg, memory.svg and timeline.svg there, and kernels beside the machine's ceilings",
                "DIR"},
               {"--json", "the report as one JSON object"}},
     .rest = "COMMAND",
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
