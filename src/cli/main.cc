// The program `weft`: finds the command that was asked for and checks its switches. Knows no command by name, and of Weft
// nothing but the public C ABI.
#include <algorithm>
#include <cstdio>

#include "src/cli/command.h"

namespace weft::cli {
namespace {

constexpr Flag kHelp = {"--help", "says this"};

bool IsHelp(std::string_view word) { return word == kHelp.name || word == "-h"; }

std::string UsageOf(const Command& command) {
  std::string usage(command.name);
  for (const Flag& flag : command.flags) usage += " [" + std::string(flag.name) + "]";
  return usage;
}

void PrintRow(const std::string& left, std::string_view right, size_t width) {
  std::printf("  %-*s  %.*s\n", static_cast<int>(width), left.c_str(), static_cast<int>(right.size()), right.data());
}

int Help(const std::vector<Command>& commands) {
  size_t width = 0;
  for (const Command& command : commands) width = std::max(width, UsageOf(command).size());
  std::printf("usage: weft COMMAND [--help] [SWITCH]...\n\n");
  for (const Command& command : commands) PrintRow(UsageOf(command), command.summary, width);
  return kDone;
}

int HelpOf(const Command& command) {
  std::printf("usage: weft %s\n\n%.*s\n\n", UsageOf(command).c_str(), static_cast<int>(command.summary.size()),
              command.summary.data());
  size_t width = kHelp.name.size();
  for (const Flag& flag : command.flags) width = std::max(width, flag.name.size());
  for (const Flag& flag : command.flags) PrintRow(std::string(flag.name), flag.doc, width);
  PrintRow(std::string(kHelp.name), kHelp.doc, width);
  return kDone;
}

int Misuse(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return kMisused;
}

// What follows "there is no …": a guess, if there is one.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view nearest = Nearest(word, candidates);
  return nearest.empty() ? "; " : "; did you mean '" + std::string(nearest) + "'? ";
}

int Run(const Command& command, std::span<const std::string_view> words) {
  std::vector<std::string_view> known = {kHelp.name};
  for (const Flag& flag : command.flags) known.push_back(flag.name);
  Arguments arguments;
  const std::string name = "weft " + std::string(command.name);
  for (std::string_view word : words) {
    if (IsHelp(word)) return HelpOf(command);
    if (std::find(known.begin(), known.end(), word) != known.end()) {
      arguments.flags.push_back(word);
    } else if (word.starts_with("-")) {
      return Misuse(name + ": there is no option '" + std::string(word) + "'" + DidYouMean(word, known) + "'" + name +
                    " --help' lists all");
    } else {
      return Misuse(name + ": '" + std::string(word) + "' is too much: it takes no arguments but options; '" + name +
                    " --help' lists them");
    }
  }
  return command.run(arguments);
}

int Main(std::span<const std::string_view> words) {
  const std::vector<Command> commands = AllCommands();
  if (words.empty()) return Misuse("weft: which command? 'weft --help' lists all");
  if (IsHelp(words[0])) return Help(commands);
  std::vector<std::string_view> names;
  for (const Command& command : commands) {
    if (command.name == words[0]) return Run(command, words.subspan(1));
    names.push_back(command.name);
  }
  // "--version" is nearly "version".
  const std::string_view word = words[0].substr(std::min(words[0].find_first_not_of('-'), words[0].size()));
  return Misuse("weft: there is no command '" + std::string(words[0]) + "'" + DidYouMean(word, names) +
                "'weft --help' lists all");
}

}  // namespace
}  // namespace weft::cli

int main(int count, char** words) {
  const std::vector<std::string_view> rest(words + (count > 0 ? 1 : 0), words + count);
  const int status = weft::cli::Main(rest);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "weft: what there was to say could not be written\n");
  return status == 0 ? weft::cli::kFailed : status;
}
