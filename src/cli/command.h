// A subcommand of `weft`, and how it registers itself: one file a command, which nobody else names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::cli {

// A switch, "--json", or an option with a value, "--input FILE". Every command has --help besides.
struct Flag {
  std::string_view name;
  std::string_view doc;
  std::string_view value;  // what the value is called; empty: a switch
};

class Arguments {
 public:
  bool has(std::string_view flag) const { return !values(flag).empty(); }
  // In the order they were given; of a switch an empty one for each time.
  std::vector<std::string_view> values(std::string_view flag) const;
  std::string_view value(std::string_view flag, std::string_view otherwise) const;  // the last one

  std::vector<std::pair<std::string_view, std::string_view>> flags;
  std::string_view parameter;
  std::vector<std::string_view> more;  // words behind it
  std::vector<std::string_view> rest;  // behind "--"
};

struct Command {
  std::string_view name;
  std::string_view summary;  // one line
  // The one word besides the flags is called so, in brackets where it may be left out; empty: there is none.
  std::string_view parameter;
  std::vector<Flag> flags;
  // Name of the words behind "--", which may stand in the place of the one word; empty: the command takes none.
  std::string_view rest = "";
  std::string_view more = "";                  // what further words are called; empty: it takes one word
  std::vector<std::string_view> choices = {};  // of the one word, where there are few; for completion
  // The exit status; writes to stdout what was asked for, to stderr why not.
  int (*execute)(const Arguments& arguments);
};

// Exit statuses of all commands.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;  // ran, and what it was asked for could not be had or is not well
inline constexpr int kMisused = 2;

// In a command's file: `const Registration kVersion({.name = "version", …});`. Before main runs, so in any order.
struct Registration {
  explicit Registration(Command command);
};
// All commands, sorted by name.
std::vector<Command> AllCommands();

// The candidate that was probably meant, or nothing: at most one edit away for short words, a third of the letters for long.
std::string_view Nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace weft::cli
