// What a subcommand of `weft` is, and how it makes itself known: one file a command, which nobody else names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

// A switch: "--json". Every command has --help besides.
struct Flag {
  std::string_view name;
  std::string_view doc;
};

class Arguments {
 public:
  bool has(std::string_view flag) const;
  std::vector<std::string_view> flags;
};

struct Command {
  std::string_view name;
  std::string_view summary;  // one line
  std::vector<Flag> flags;
  int (*run)(const Arguments& arguments);  // the exit status; writes to stdout what was asked for, to stderr why not
};

// Exit statuses of all commands.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;  // ran, and what it was asked for could not be had or is not well
inline constexpr int kMisused = 2;

// In a command's file: `const Registration kVersion({.name = "version", …});`. Before main runs, so in any order.
struct Registration {
  explicit Registration(Command command);
};
// By name.
std::vector<Command> AllCommands();

// The candidate that was probably meant, or nothing: at most one edit away for short words, a third of the letters for long.
std::string_view Nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace weft::cli
