// The list of commands, and guessing which one was meant.
#include "src/cli/command.h"

#include <algorithm>
#include <numeric>

namespace weft::cli {
namespace {

std::vector<Command>& Registered() {
  static std::vector<Command> commands;
  return commands;
}

// Insertions, removals, replacements and swaps of neighbours that make one word the other. Words are short: quadratic.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::vector<std::string_view> Arguments::values(std::string_view flag) const {
  std::vector<std::string_view> found;
  for (const auto& [name, value] : flags) {
    if (name == flag) found.push_back(value);
  }
  return found;
}

std::string_view Arguments::value(std::string_view flag, std::string_view otherwise) const {
  const std::vector<std::string_view> all = values(flag);
  return all.empty() ? otherwise : all.back();
}

Registration::Registration(Command command) { Registered().push_back(std::move(command)); }

std::vector<Command> AllCommands() {
  std::vector<Command> commands = Registered();
  std::sort(commands.begin(), commands.end(), [](const Command& a, const Command& b) { return a.name < b.name; });
  return commands;
}

std::string_view Nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (std::string_view candidate : candidates) {
    const size_t distance = Distance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace weft::cli
