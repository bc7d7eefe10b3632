// The program `weft`: finds the command that was asked for and checks its options. Knows no command by name, and of Weft
// nothing but the public C ABI.
#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "src/cli/command.h"

namespace weft::cli {
namespace {

constexpr Flag kHelp = {"--help", "says this"};

bool IsHelp(std::string_view word) { return word == kHelp.name || word == "-h"; }

std::string SpellingOf(const Flag& flag) {
  return std::string(flag.name) + (flag.value.empty() ? "" : " " + std::string(flag.value));
}

std::string UsageOf(const Command& command, size_t most_flags = SIZE_MAX) {
  std::string usage(command.name);
  if (!command.parameter.empty()) usage += " " + std::string(command.parameter);
  if (!command.more.empty()) usage += " " + std::string(command.more);
  const std::string rest = command.rest.empty() ? "" : " [-- " + std::string(command.rest) + "]";
  if (command.flags.size() > most_flags) return usage + " [OPTION]..." + rest;
  for (const Flag& flag : command.flags) usage += " [" + SpellingOf(flag) + "]";
  return usage + rest;
}

void PrintRow(const std::string& left, std::string_view right, size_t width) {
  std::printf("  %-*s  %.*s\n", static_cast<int>(width), left.c_str(), static_cast<int>(right.size()), right.data());
}

int Help(const std::vector<Command>& commands) {
  constexpr size_t kFlags = 2;  // of a command, on its line
  size_t width = 0;
  for (const Command& command : commands) width = std::max(width, UsageOf(command, kFlags).size());
  std::printf("usage: weft COMMAND [--help] [OPTION]...\n\n");
  for (const Command& command : commands) PrintRow(UsageOf(command, kFlags), command.summary, width);
  return kDone;
}

int HelpOf(const Command& command) {
  std::printf("usage: weft %s\n\n%.*s\n\n", UsageOf(command).c_str(), static_cast<int>(command.summary.size()),
              command.summary.data());
  size_t width = kHelp.name.size();
  for (const Flag& flag : command.flags) width = std::max(width, SpellingOf(flag).size());
  for (const Flag& flag : command.flags) PrintRow(SpellingOf(flag), flag.doc, width);
  PrintRow(std::string(kHelp.name), kHelp.doc, width);
  return kDone;
}

int Misuse(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return kMisused;
}

// Returns the text behind "there is no …": a guess, if there is one.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view nearest = Nearest(word, candidates);
  return nearest.empty() ? "; " : "; did you mean '" + std::string(nearest) + "'? ";
}

int Run(const Command& command, std::span<const std::string_view> words) {
  Arguments arguments;
  const std::string name = "weft " + std::string(command.name), help = "'" + name + " --help' ";
  std::vector<std::string_view> known = {kHelp.name};
  for (const Flag& flag : command.flags) known.push_back(flag.name);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word(words[i]);
    if (IsHelp(word)) return HelpOf(command);
    if (word == "--" && !command.rest.empty()) {
      arguments.rest.assign(words.begin() + static_cast<ptrdiff_t>(i) + 1, words.end());
      break;
    }
    const auto flag = std::ranges::find(command.flags, words[i], &Flag::name);
    if (flag != command.flags.end()) {
      if (!flag->value.empty() && i + 1 == words.size()) {
        return Misuse(name + ": " + word + " wants " + std::string(flag->value) + " after it; " + help + "says more");
      }
      arguments.flags.emplace_back(flag->name, flag->value.empty() ? "" : words[++i]);
    } else if (word.starts_with("-")) {
      return Misuse(name + ": there is no option '" + word + "'" + DidYouMean(word, known) + help + "lists all");
    } else if (!command.more.empty() && !arguments.parameter.empty()) {
      arguments.more.push_back(words[i]);
    } else if (command.parameter.empty() || !arguments.parameter.empty()) {
      const std::string takes = command.parameter.empty() ? "no arguments" : "one " + std::string(command.parameter);
      return Misuse(name + ": '" + word + "' is too much: it takes " + takes + " but options; " + help + "lists them");
    } else {
      arguments.parameter = words[i];
    }
  }
  const bool optional = command.parameter.empty() || command.parameter.starts_with("[") || !command.rest.empty();
  if (!optional && arguments.parameter.empty()) {
    return Misuse(name + ": which " + std::string(command.parameter) + "? " + help + "says more");
  }
  return command.execute(arguments);
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
