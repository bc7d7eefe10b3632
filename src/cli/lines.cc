// `weft lines`: a text with positions such as "train+0x12ab", which Weft writes where nobody marked a line, with files and lines in
// their place.
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "src/cli/command.h"
#include "src/cli/elfutils.h"

namespace weft::cli {
namespace {

int Fail(const std::string& problem) {
  std::fprintf(stderr, "weft lines: %s\n", problem.c_str());
  return kFailed;
}

#if !WEFT_HAS_ELFUTILS

int Execute(const Arguments&) {
  return Fail("this command was built without elfutils (Debian's libdw-dev), which reads debug information");
}

#else

// The files by the names that positions have, and where each begins.
class Modules {
 public:
  bool Open(const Arguments& arguments, std::string* problem) {
    if (!dw_.IsThere(problem)) return false;
    session_.reset(dw_.dwfl_begin(&callbacks_));
    if (session_ == nullptr) return *problem = "elfutils cannot begin", false;
    dw_.dwfl_report_begin(session_.get());
    const auto add = [&](std::string_view file) {
      const std::string path(file), base = path.substr(path.rfind('/') + 1);
      Dwfl_Module* const module = dw_.dwfl_report_offline(session_.get(), base.c_str(), path.c_str(), -1);
      if (module == nullptr) return *problem = path + ": " + dw_.dwfl_errmsg(-1), false;
      Dwarf_Addr begin = 0;
      dw_.dwfl_module_info(module, nullptr, &begin, nullptr, nullptr, nullptr, nullptr, nullptr);
      modules_.insert_or_assign(base, Module{module, begin});
      return true;
    };
    if (!add(arguments.parameter)) return false;
    for (const std::string_view file : arguments.more) {
      if (!add(file)) return false;
    }
    dw_.dwfl_report_end(session_.get(), nullptr, nullptr);
    return true;
  }

  // "train.c:9"; empty where the file is none of these, or has no line there. `offset` is behind the call.
  std::string LineOf(std::string_view base, uint64_t offset) {
    const auto module = modules_.find(base);
    if (module == modules_.end() || offset == 0) return "";
    Dwfl_Line* const line = dw_.dwfl_module_getsrc(module->second.module, module->second.begin + offset - 1);
    int number = 0;
    const char* const source =
        line == nullptr ? nullptr : dw_.dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
    if (source == nullptr) ++unknown_;
    return source == nullptr ? "" : std::string(source) + ":" + std::to_string(number);
  }
  // Addresses in these files that have no line.
  size_t unknown() const { return unknown_; }

 private:
  struct Module {
    Dwfl_Module* module;
    Dwarf_Addr begin;
  };
  const Elfutils dw_;
  char* debug_path_ = nullptr;
  const Dwfl_Callbacks callbacks_ = {.find_elf = nullptr,
                                     .find_debuginfo = dw_.dwfl_standard_find_debuginfo,
                                     .section_address = dw_.dwfl_offline_section_address,
                                     .debuginfo_path = &debug_path_};
  std::unique_ptr<Dwfl, decltype(dw_.dwfl_end)> session_{nullptr, dw_.dwfl_end};
  std::map<std::string, Module, std::less<> > modules_;
  size_t unknown_ = 0;
};

// Names of files may have any character; those of modules that are looked for have none of these.
bool Ends(char c) { return c != '\0' && std::strchr(" \t\n\"'(),;:=", c) != nullptr; }

std::string Placed(std::string_view text, Modules* modules) {
  constexpr std::string_view kPlus = "+0x";
  std::string out;
  for (size_t at = text.find(kPlus); at != text.npos; at = text.find(kPlus)) {
    size_t begin = at;
    while (begin > 0 && !Ends(text[begin - 1])) --begin;
    uint64_t offset = 0;
    const char* const digits = text.data() + at + kPlus.size();
    const char* const end = std::from_chars(digits, text.data() + text.size(), offset, 16).ptr;
    const size_t length = static_cast<size_t>(end - text.data());
    const std::string line = modules->LineOf(text.substr(begin, at - begin), offset);
    out += line.empty() ? std::string(text.substr(0, length)) : std::string(text.substr(0, begin)) + line;
    text.remove_prefix(length);
  }
  return out + std::string(text);
}

int Execute(const Arguments& arguments) {
  Modules modules;
  std::string problem;
  if (!modules.Open(arguments, &problem)) return Fail(problem);
  char* line = nullptr;
  size_t room = 0;
  for (ssize_t size; (size = getline(&line, &room, stdin)) > 0;) {
    const std::string placed = Placed({line, static_cast<size_t>(size)}, &modules);
    if (std::fwrite(placed.data(), 1, placed.size(), stdout) != placed.size()) return Fail(std::strerror(errno));
  }
  std::free(line);
  if (modules.unknown() > 0) {
    std::fflush(stdout);
    std::fprintf(stderr, "weft lines: %zu addresses have no line: was it built with -g?\n", modules.unknown());
  }
  return kDone;
}

#endif

const Registration kLines(
    {.name = "lines",
     .summary = "copies standard input, with files and lines where it has addresses in these files (train+0x12ab)",
     .parameter = "PROGRAM",
     .flags = {},
     .more = "LIBRARY...",
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
